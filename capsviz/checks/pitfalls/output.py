"""Checks of the output: NaN, dependence on batch and labels, randomness, devices, scores."""

import math
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from capsviz.checks import calling
from capsviz.checks.calling import DOUBLE, SINGLE
from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import Judgement, SkippedError, check, fails, passes, warns
from capsviz.nn.computation import draws
from capsviz.wrapping.environment import ANY, beside_images, in_words, names_gpu
from capsviz.wrapping.leaves import mapped, named_tensors, tensors
from capsviz.wrapping.recorder import Pass

NEW_LOGITS = "create logits, zeros for each image, in `forward`: no call may change the next one"
OF_DECODER = ("decoder_without_class", "targets_out_of_range", "permuted_reconstruction")
POSITION = 3  # of seven; if all images depended on the first one, position 0 would not show it
ALONE, CLOSE, SAME = 1e-4, 1e-4, 1e-6
USUAL, HIGH = 0.1, 0.5


@check
def nan_output(candidate: Candidate) -> Judgement:
    """Count the numbers that are NaN or infinite, for seven images."""
    outputs = [t for t in tensors(candidate.call(candidate.images(7))) if t.is_floating_point()]
    if not outputs:
        raise SkippedError("the output holds no tensors of numbers")
    broken = sum(int((~tensor.isfinite()).sum()) for tensor in outputs)
    whole = sum(tensor.numel() for tensor in outputs)
    message = f"{broken:,} of {whole:,} numbers are NaN or infinite"
    return (fails if broken else passes)(message, share=broken / whole)


@check
def not_repeatable(candidate: Candidate) -> Judgement:
    """Compare the outputs for the same images from one random state, and from two.

    If scores and poses are repeatable, only the checks of the decoder are skipped.
    """
    caller, images = candidate.caller, candidate.images(5)

    def kept(network, dtype) -> float:
        return max(caller.differences(lambda: candidate.call(images.to(dtype), network), (0, 0)))

    off, limit = caller.in_double(kept)
    if not off <= limit:  # NaN too
        return fails(
            f"two calls from one random state differ by {off:.2g}, expected 0: the network keeps "
            "something between calls", difference=off,
        )._replace(fix=NEW_LOGITS)  # fmt: skip
    off = max(caller.randomness)
    if off == float("inf"):
        return fails("two calls return tensors of different shapes", difference=off)
    if off <= SINGLE:
        return passes(f"two calls differ by {off:.1g}", difference=off)
    message = f"two calls with the same images differ by {off:.2g}, expected 0"
    with suppress(Exception):  # scores or poses that cannot be read count as different
        parts = caller.differences(
            lambda: (candidate.scores(images), candidate.poses(images)), (0, 1)
        )
        if max(parts) <= SINGLE:
            message += "; scores and poses are the same"
            return fails(message, difference=off)._replace(stops=OF_DECODER)
    return fails(message, difference=off)


@check
def mixed_batch(candidate: Candidate) -> Judgement:
    """Compare the results of one image among noise, black and white images, in float64."""
    candidate.caller.require_different()
    one = candidate.images(1)
    others = [candidate.images(6, seed=seed) for seed in (1, 2)]
    if candidate.caller.recipe.example is None:
        others += [one.new_full((6, *one.shape[1:]), value) for value in (0, 1)]

    def change(network, dtype) -> float:
        changes = []
        for position, beside in ((0, others[:2]), (POSITION, others)):
            batches = [torch.cat((some[:position], one, some[position:])) for some in beside]
            first, *rest = (
                [t[position].cpu().double() for t in outputs if t.dim() and len(t) == len(one) + 6]
                for outputs in (candidate.caller.floats(x.to(dtype), network) for x in batches)
            )
            if not first:
                raise SkippedError("no output has one part for each image")
            changes += [
                (a - b).abs().max() for other in rest for a, b in zip(first, other, strict=True)
            ]
        return float(torch.stack(changes).max())  # NaN if one is

    off, limit = candidate.caller.in_double(change)
    if not off <= limit:  # NaN too
        return fails(
            f"results of an image change by {off:.2g} with the other images of its batch, "
            "expected 0", change=off,
        )  # fmt: skip
    kind = "float64" if limit == DOUBLE else "float32"
    return passes(f"results change by {off:.1g} with the other images, in {kind}", change=off)


@check
def fails_on_single_image(candidate: Candidate) -> Judgement:
    """Compare the results of one image alone and among three."""
    images, floats = candidate.images(3), candidate.caller.floats
    few = floats(images)
    if not few:
        raise SkippedError("the output holds no tensors")
    try:
        one = floats(images[:1])
    except SkippedError:
        raise
    except Exception as error:  # a user's code may raise anything
        return fails(f"one image raises {in_words(error)}", images=1)
    alone, among = ([tuple(tensor.shape) for tensor in some] for some in (one, few))
    if [len(shape) for shape in alone] != [len(shape) for shape in among]:
        return fails(f"one image gives tensors {alone}, three images give {among}", images=1)

    def change(network, dtype) -> float:  # in float64, rounding lets no other class win
        alone, among = (floats(x.to(dtype), network) for x in (images[:1], images))
        pairs = zip(alone, among, strict=True)
        own = [(a, b[:1]) for a, b in pairs if b.dim() and (len(a), len(b)) == (1, 3)]
        return max((float((a - b).abs().max()) for a, b in own), default=0.0)

    off, _ = candidate.caller.in_double(change)
    message = f"an image alone differs by {off:.2g} from itself among three"
    if off <= ALONE:
        return passes(message, change=off)
    return fails(f"{message}, expected 0", change=off)


@check
def label_leak(candidate: Candidate) -> Judgement:
    """Compare the outputs for two labels of the same images, in evaluation mode."""
    way, labels = candidate.caller.way, calling.labels_of(candidate.network)
    if way == "given" and labels is not None and _given(candidate):
        raise SkippedError(f"it takes '{labels.name}', and call= gives more than images")
    if way == "example":
        raise SkippedError("whether labels are among the inputs of the example is not known")
    if way in ("given", "look"):
        return passes("it is given no labels")
    if labels is None:
        others = beside_images(candidate.network)
        unknown = [p.name for p in others if p.default is None]
        if unknown := [*unknown, *(str(p) for p in others if p.kind in ANY)]:
            raise SkippedError(
                f"it can be given {', '.join(unknown)}, too, which may be labels: name them "
                "'labels', or give call= as it is called at test (on the command line to "
                "capsviz.wrap, in the function of --network)"
            )
        return passes("it takes images alone")
    needed = labels.default is labels.empty
    for kind in [way] if needed else ["one-hot", "index"]:
        with suppress(Exception):  # it takes the other kind of label
            first, second = (_outputs(candidate, kind, label, labels.name) for label in (0, 1))
            break
    else:
        raise SkippedError(f"'{labels.name}' takes neither indices nor one-hot labels")
    moved = {
        name: float((a.cpu().double() - second[name].cpu().double()).abs().max())
        for name, a in first.items()
        if a.is_floating_point() and a.shape == second[name].shape
    }
    name, off = max(moved.items(), key=lambda pair: pair[1], default=("", 0.0))
    if off <= SAME:
        return passes(f"in evaluation mode '{labels.name}' changes nothing ({off:.1g})", change=off)
    message = f"in evaluation mode output{name} changes by {off:.2g} with '{labels.name}'"
    if needed:
        return fails(f"{message}, which must be given", change=off)
    pixels = candidate.images(1).numel()
    if all(first[one].numel() == 3 * pixels for one, off in moved.items() if off > SAME):
        return warns(f"{message}, if it is given; scores and poses do not change", change=off)
    return fails(f"{message}, if it is given", change=off)


def _given(candidate: Candidate) -> bool:
    """Return whether the user's `call` passes more than images to the network."""
    counts: list[int] = []
    with candidate.network.register_forward_pre_hook(
        lambda _, args, kwargs: counts.append(len(args) + len(kwargs)), with_kwargs=True
    ):
        candidate.call(candidate.images(2))
    return counts != [1]


def _outputs(candidate: Candidate, kind: str, label: int, name: str) -> dict:
    caller, images = candidate.caller, candidate.images(3)
    recipe = replace(caller.recipe, call=calling.labelled(kind, candidate.classes, label, name))
    with draws(0, images.device):
        return dict(named_tensors(recipe.run(Pass(candidate.network), images)))


class GPURequests(Pass):
    """A pass that records the lines of code that request a GPU."""

    def __init__(self, network: nn.Module):
        super().__init__(network)
        self.lines: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named: list[bool] = []
        mapped((args, kwargs or {}), lambda leaf: named.append(_is_gpu(leaf)) or leaf)
        if function is Tensor.cuda or (any(named) and self.device.type != "cuda"):
            frame = self.frame()
            self.lines.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        return super().__torch_function__(function, types, args, kwargs)


@check
def hardcoded_gpu(candidate: Candidate) -> Judgement:
    """Watch one pass for `.cuda()` and devices of that name."""
    mode = GPURequests(candidate.network)
    candidate.caller.run(mode, candidate.images(2))
    lines = list(dict.fromkeys(mode.lines))
    if lines:
        return fails(f"the code asks for a GPU in {', '.join(lines[:4])}", lines=len(lines))
    if candidate.caller.recipe.cuda:
        return fails("without a GPU the pass ends in an error that names CUDA", lines=1)
    return passes("the code names no GPU", lines=0)


def _is_gpu(leaf) -> bool:
    """Return whether an argument names a GPU, or a tensor type such as `torch.cuda.FloatTensor`."""
    typed = str(leaf) if isinstance(leaf, str | type) else ""  # str(tensor) would be slow
    return names_gpu(leaf) or typed.startswith(("torch.cuda.", "<class 'torch.cuda."))


@check
def scores_are_not_lengths(candidate: Candidate) -> Judgement:
    """Compare scores with the lengths of the poses, their softmax and their squares."""
    images = candidate.images(7)
    lengths, scores = candidate.poses(images).norm(dim=-1), candidate.scores(images)
    plain, soft, square = (
        float((scores - own).abs().max()) for own in (lengths, lengths.softmax(1), lengths.square())
    )
    highest = math.e / (math.e + candidate.classes - 1)
    numbers = {"from_norms": plain, "from_softmax": soft, "from_squares": square,
               "highest_possible": highest}  # fmt: skip
    if plain <= CLOSE:
        return passes(f"scores are the lengths of the poses, within {plain:.1g}", **numbers)
    by_length = candidate.capsules.by_length
    if soft <= CLOSE and by_length:
        return fails(
            f"scores are a softmax of the lengths: none can exceed {highest:.3f}", **numbers
        )
    if square <= CLOSE and by_length:
        return fails(f"scores are squared lengths, within {square:.1g}", **numbers)
    return warns(f"scores differ from the lengths of the poses by {plain:.2g}", **numbers)


@check
def saturation(candidate: Candidate) -> Judgement:
    """Measure the mean length of class capsules before training: about 0.04 if correct."""
    untrained = candidate.untrained()
    with untrained.caller.evaluating():
        if not untrained.capsules.by_length:
            raise SkippedError("length is not presence in this network")
        mean = float(untrained.poses(untrained.images(7)).norm(dim=-1).mean())
    message = f"mean length before training is {mean:.2g}"
    if mean <= USUAL:
        return passes(message, mean=mean)
    return (fails if mean > HIGH else warns)(f"{message} (usually ≤ {USUAL})", mean=mean)
