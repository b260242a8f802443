"""Which class do couplings carry? One image's votes, another image's couplings.

`capsviz transplant --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

import click

from capsviz.analyses.transplant import one_by_one
from capsviz.analyses.transplant.pair import compute, of_two
from capsviz.analyses.transplant.results import Parts, Result, Rounds, Statistics
from capsviz.analyses.transplant.words import CONDITIONS, caption, findings, verdict
from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.inputs.samples import next_class
from capsviz.statistics.replicates import mean

EXAMPLES = """
capsviz transplant --digit 2 --donor 3  # 6 s
capsviz transplant --n 1000  # about 10 s
capsviz transplant --n 1000 --iterations 2  # about 10 s
capsviz transplant --of children  # about 10 s
capsviz transplant --by iterations  # about 10 s
"""

NEEDS = ("votes", "couplings", "interventions")  # of a network, see tracing.needs
# At least so many couples and pairs; types, and children without places, are in another order in
# each run, places are not.
UNORDERED = dict.fromkeys(("types", "children"))
OVER_RUNS = {"couples": min, "n": min, "tied": mean, "first": None, "off": mean}
OVER_RUNS |= dict.fromkeys(("own_change", "partner_change", "neither", "own", "partner"), UNORDERED)

__all__ = ["caption", "compute", "findings", "verdict"]


def evaluate(
    model, images, *, classes, dataset, iterations=None, parts=False, seed=0, progress=iter
) -> Statistics:
    """Exchange the couplings of N images (N, C, H, W), couple by couple, with controls.

    Parameters
    ----------
    classes     names of the classes.
    dataset     its name, for the record.
    iterations  of routing, instead of the network's own; not together with `parts`.
    parts       also exchange the couplings of some capsules alone.
    seed        of the couples, the shuffles, the noise and the bootstrap.
    progress    wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for images that make less than 2 couples of unlike class, or a network whose
                couplings cannot be replaced.
    """
    from capsviz.analyses.transplant import measure
    from capsviz.analyses.transplant import parts as some
    from capsviz.statistics.comparison import draw_resamples

    images = images.cpu()
    options = {"iterations": iterations, "seed": seed}
    outcomes = measure.transplant(model, images, **options, progress=progress)
    pairs = outcomes.own.shape[1]
    counts = draw_resamples(pairs // 2, seed=seed)

    def mean(values, shares):
        return measure.over_pairs(values, counts, shares=shares)

    return Statistics(
        conditions=list(CONDITIONS),
        as_own=mean(outcomes.own, True),
        as_partner=mean(outcomes.partner, True),
        tied=outcomes.tied.double().mean(1).numpy(),
        as_neither=mean(~outcomes.own & ~outcomes.partner, True),
        own_activation=mean(outcomes.own_activation, False),
        partner_activation=mean(outcomes.partner_activation, False),
        coupling_sd=mean(outcomes.coupling_sd, False),
        couples=pairs // 2,
        n=pairs,
        classes=list(classes),
        dataset=dataset,
        given=measure.given(model),
        iterations=iterations,
        **(some.estimates(model, images, seed=seed) if parts else {}),
    )


def plot(result: Result | Statistics | Parts | Rounds, *, width=7.16):
    """Two images with each other's couplings, or what pairs are read as."""
    from capsviz.analyses.transplant import draw, panels

    drawings = {Statistics: draw.shares, Parts: panels.parts, Rounds: panels.rounds}
    return drawings.get(type(result), draw.pair)(result, width)


@analysis(__doc__, picture=True)
@click.option(
    "--donor",
    type=int,
    metavar="CLASS",
    help="Class of the other image. [default: the one after that of the first]",
)
@click.option("--donor-index", default=0, show_default=True, help="Which image of that class.")
@options.number("Over N test images instead of two.", "--evaluate")
@click.option(
    "--parts/--no-parts",
    default=False,
    help="Also exchange the couplings of some types, places or capsules alone; takes longer.",
)
@click.option(
    "--of",
    metavar="couplings|children|poses",
    help="What is exchanged, of one type and one place after the other. [default: couplings]",
)
@click.option(
    "--by",
    metavar="capsules|iterations",
    help="One type and one place after the other, or couplings in one iteration after the other.",
)
@click.option(
    "--layer", type=int, help="A routed layer, from 0, where there are several. [default: the last]"
)
@click.option(
    "--iterations",
    type=click.IntRange(1, 100),
    help="Routing iterations. [default: the network's own]",
)
@options.seed
def command(run, donor, donor_index, n, parts, of, by, layer, iterations, seed):
    """Write the figure and its numbers; say what the couplings decide."""
    single = options.typed("of", "by", "layer")
    if iterations is not None and (single or parts):
        raise ValueError(f"--iterations is not for {[*single, '--parts'][0]}: drop one of them")
    number = one_by_one.FEW if single and n is None else n
    options.refuse_without_evaluate(number, "parts")
    why = single[0] if single and n is None else "--n"
    options.refuse_with_evaluate(number, "digit", "index", "image", "donor", "donor_index", why=why)
    if single and parts:
        raise ValueError(f"{single[0]} tells shares of the capsules, too: drop --parts")
    if single:
        yield one_by_one.outcome(run, n, of or "couplings", by or "capsules", layer, seed)
        return
    if n is not None:
        images, _ = run.images(n)
        result = evaluate(
            run.model, images, classes=run.classes, dataset=run.dataset, iterations=iterations,
            parts=parts, seed=seed, progress=run.progress("transplanting"),
        )  # fmt: skip
        yield f"transplant-{run.dataset}-{n}-images", result
        return
    if donor is None:
        donor = next_class(run.inputs, run.picture)
    donor = options.known_class(run.inputs.dataset, donor, "--donor")
    result = of_two(run.inputs, run.picture, donor, donor_index, seed, iterations)
    yield f"transplant-{run.picture.name}-{donor}-{donor_index}", result


def paper(inputs, settings):
    """For `capsviz figures`: two images, and the test set."""
    from capsviz.inputs.opening import open_picture

    picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    donor = next_class(inputs, picture)
    yield f"transplant-{picture.name}-{donor}-0", of_two(inputs, picture, donor, 0, settings.seed)
    images, _ = inputs.images(settings.few)
    name = inputs.dataset.name
    result = evaluate(
        inputs.model, images, classes=inputs.dataset.classes, dataset=name, seed=settings.seed,
        progress=settings.progress("transplanting"),
    )  # fmt: skip
    yield f"transplant-{name}-{settings.few}-images", result
