"""Claims on routing: the size of the couplings, what they do, and which class they carry."""

import numpy as np

from benchmarks.claims.claim import DESCRIPTION, Claim, Missing, needs, signed
from capsviz.analyses.primary.measure import verdict as of_decoders
from capsviz.analyses.transplant.words import LIKE, OWN, UNLIKE
from capsviz.analyses.transplant.words import verdict as of_transplant
from capsviz.statistics.words import number

LATER = "another trained network in which it is not so"


@needs("Routing over the test set", "routing-*-images.json")
def routing(one):
    """Near-uniform couplings; accuracy with others; iterations; dead capsules."""
    result = one.result
    last, J = len(result.entropy_nats) - 1, len(result.classes)
    effective = result.effective_parents[last]
    spreads = "; ".join(_controls(result, result.control_effective_parents, ".2f"))
    near = "lie near uniform" if effective.low > 0.9 * J else "are not near uniform"
    yield Claim(
        f"The couplings of `{one.network}` {near}: a capsule has "
        f"{float(effective.value):.3f} of {J} effective parents. That is their size; what they do "
        "is told by the transplant.",
        f"{effective:.3f}",
        one.source,
        "effective_parents",
        spreads,
        one.runs,
        f"clearly fewer effective parents; {LATER}",
    )
    if result.coupling_sd is None:
        yield Missing("Standard deviation of c about 1/J, with that of each control", one.source)
    else:
        sd = result.coupling_sd[last]
        yield Claim(
            f"The couplings of `{one.network}` have a standard deviation of {float(sd.value):.4f} "
            f"about uniform, 1/J = {1 / J:g}.",
            f"{sd:.4f}",
            one.source,
            "coupling_sd",
            "; ".join(_controls(result, result.control_sd, ".4f")),
            one.runs,
            f"a standard deviation as large as that of random couplings; {LATER}",
        )
    routed = result.accuracy[last]
    for k, name in enumerate(result.controls):
        control = result.control_accuracy[k]
        spread = "" if result.control_sd is None else f", with sd {result.control_sd.value[k]:.4f}"
        yield Claim(
            f"With {name} couplings in place of routing's, {number(float(control.value), '.1%')} "
            f"of {result.n:,} images are read right.",
            f"{control:.2%}{spread}; less r = 1 on the same images {signed(control.difference)}",
            one.source,
            "control_accuracy",
            f"routed {routed:.2%}",
            one.runs,
            "another accuracy with other draws of the couplings; the network was not trained with "
            "them",
        )
    for name in ("shuffled", "matched"):
        if name not in result.controls:
            yield Missing(f"Accuracy with {name} couplings", one.source)
    activation = result.true_activation
    yield Claim(
        f"{last + 1} iterations in place of one change "
        f"{number(float(result.changed.value[last]), '.1%')} of the predictions; the activation of "
        f"the true class goes from {activation.value[0]:.2f} to {activation.value[last]:.2f}.",
        f"{result.changed[last]:.2%} changed; activation {activation[0]:.3f} to "
        f"{activation[last]:.3f}",
        one.source,
        "changed, true_activation",
        f"accuracy less that of r = 1: {signed(result.accuracy.difference[last], '.2f')}",
        one.runs,
        "more changed predictions on images that r = 1 misreads more often",
    )
    if result.dead is None:
        yield Missing("Dead capsules, by the largest activation over images", one.source)
    else:
        yield Claim(
            f"{result.dead} of {len(result.largest_activation):,} primary capsules are dead.",
            f"the smallest of the largest activations is {np.min(result.largest_activation):.3f}; "
            "no interval: a count",
            one.source,
            "dead, largest_activation",
            DESCRIPTION,
            one.runs,
            f"a capsule below {result.dead_norm:g} in all images",
        )


def _controls(result, estimate, form):
    return [
        f"{name} {number(float(value), form)}"
        for name, value in zip(result.controls, estimate.value, strict=True)
    ]


@needs("Which class couplings carry, with one image's votes and another's couplings",
       "transplant-*-images.json")  # fmt: skip
def transplant(one):
    """What images are read as with another image's couplings."""
    result = one.result
    partner = result.as_partner[UNLIKE]
    controls = "; ".join(
        f"{name} {own:.1%} as their own class (sd {float(sd.value):.4f})"
        for name, own, sd in zip(
            result.conditions[LIKE:], result.as_own[LIKE:], result.coupling_sd[LIKE:], strict=True
        )
    )
    yield Claim(
        f"Given the couplings of an image of another class, "
        f"{number(float(partner.value), '.1%')} of {result.n:,} images are read as that image's "
        "class, "
        f"{number(float(result.as_own.value[UNLIKE]), '.1%')} as their own. In "
        f"words, {of_transplant(result)}.",
        f"{partner:.1%}, Wilson's of the effective number of {result.n:,} pairs",
        one.source,
        "as_partner, as_own, coupling_sd",
        f"{controls}; its own, given back, {result.as_own[OWN]:.1%}",
        one.runs,
        "shuffled or noise couplings of equal sd that move as many images; it does not follow that "
        "couplings know more than votes (they are computed from votes), nor that routing helps "
        "accuracy",
    )


@needs("What of the couplings is needed to draw the image", "primary-*-images.json")
def primary(one):
    """The verdict on decoders trained with and without couplings."""
    result = one.result
    k = result.conditions.index("trained with uniform couplings")
    more = result.sse.difference[k]
    controls = "; ".join(
        f"{name} {result.sse[j]:.2f}" for j, name in enumerate(result.conditions) if j
    )
    text = of_decoders(result)
    yield Claim(
        f"{text[0].upper()}{text[1:]}.",
        f"{more:+.2f} SSE, paired, of {result.sse[0]:.2f} with all capsules",
        one.source,
        "sse",
        controls,
        f"{one.runs}, and one training of each of the two decoders",
        "a second training of both decoders whose difference is as large without couplings: one of "
        "each cannot tell the couplings from training luck",
    )
