"""Which class do couplings carry? One image's votes, another image's couplings.

Method: activation patching (Vig et al. 2020, arXiv:2004.12265; Zhang & Nanda 2024,
arXiv:2309.16042), here of couplings. An image A is passed through the network, and its own
couplings are replaced, in every iteration, by those that another image B has in its last iteration;
the votes stay those of A. What the network then reads is counted as A's class, as B's, or as
neither; classes are what the network reads each image as when it routes by itself. One image is
shown together with B, each with the couplings of the other. Over a test set (`--n N`) images
are put into couples at random, the two of a couple of unlike class, no image in two couples; each
gives its couplings to the other, so there are as many pairs (A, B) as images. Intervals are 95 %:
of shares Wilson's of the effective number of pairs, of activations and of differences by
bootstrap of the couples, for the two pairs of a couple share their images, others none.

With `--parts`, some children alone get B's couplings: those of whole capsule types, of whole
places, or single ones, drawn at random for each pair.

With `--by capsules` (200 images, if `--n` says no other number) each capsule type and each place is
exchanged by itself: its children's couplings, or (`--of`) the children themselves, after which
routing runs by itself, or their poses, of which the direction alone is B's and the length, or the
activation beside it, A's. Control: as many children drawn at random. All children of B are B: that
checks the instrument, and their couplings held at A's would be the transplant above with A and B
exchanged. `--layer` does so in another routed layer; of one whose places see some children alone,
not for couplings. With `--by iterations` B's couplings are put in in one iteration alone, or in all
from it on, and the others route. Controls: A's own, given back, and those of a like image.

With `--iterations R` all images are routed R times, however often the network was trained to: how
far from even its couplings are, and what they carry, depends on it.

Controls of the first: the couplings of another image of A's own class; the mean couplings of the
data; A's own, shuffled among its children; noise with the standard deviation about uniform that A's
own have; even couplings; and those of B, shuffled among its children: what they move as well is
told by how much all children together give each class, and which child gives it does not matter.
A's own, given back in every iteration, say how much of the routing the
last iteration holds. The standard deviation about uniform stands beside each.

A reader should see whether couplings that all lie near 1/J, as those of many trained networks do,
still decide the class: near-uniform is a statement of their size, not of what they do, for the
small shifts of a thousand children add up. The noise shows that not every shift of that size does
so; the image of the same class, that being another image's is not enough. Whether a part does more
than as many capsules at random; where none does, the class is spread over all of them. With half
of the children both classes are read alike by symmetry, for the other half is the other pair's: how
steeply the curve rises there, and how many are read as neither, is what it tells. Whether couplings
that are put in early last; where they do not, votes route back to their own class.

Do not conclude that the couplings know more than the votes: they are computed from votes, here
from B's. Nor that routing improves the accuracy: a network may read the same class from its votes
under even couplings. Nor that a part which moves little says nothing: others may say the same. A
mixture is an input that the network was not trained on.
"""

from __future__ import annotations

import click

from capsviz.analyses.transplant import one_by_one
from capsviz.analyses.transplant.pair import compute, of_two
from capsviz.analyses.transplant.results import Parts, Result, Rounds, Statistics
from capsviz.analyses.transplant.words import CONDITIONS, caption, findings, verdict
from capsviz.cli import example, options
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
    donor = example.known(run.inputs.dataset, donor, "--donor")
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
