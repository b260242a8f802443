"""Compare networks under transformations of growing size: accuracy, score, calibration."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag, Seed
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.replicates import largest, within_one


class Result(NamedTuple):
    """K networks on N images under A sizes of a transformation; intervals are 95 %.

    Differences are to the first network and paired over the images.
    """

    warp: str
    unit: str  # of the sizes, "°" for example
    label: str  # of the axis of sizes
    sizes: np.ndarray  # (A,) in `unit`
    names: list[str]  # (K,) of the networks
    scores: list[str]  # (K,) kind of score: "capsule length", "activation" or "probability"
    accuracy: Estimate  # (K, A)
    true_score: Estimate  # (K, A) mean score of the true class
    calibration: Estimate  # (K, A) expected calibration error
    mcnemar_p: np.ndarray  # (K, A) exact test against the first network, uncorrected
    area: Estimate  # (K,) area under the accuracy curve, divided by the range of the sizes
    grid: int | None  # number of rotations, each with 9 shifts; None: no worst case
    worst: Estimate | None  # (K,) share correct under every warp of the grid; Wilson intervals
    n: int
    dataset: str
    resamples: int
    fill: str = "black"  # outside the image, as in `transforms.Fill`

    axes = {
        **dict.fromkeys(("accuracy", "true_score", "calibration"), ("names", "sizes")),
        **dict.fromkeys(("area", "worst"), ("names",)),
    }
    formats = {"accuracy": ".1%", "area": ".1%", "worst": ".1%"}
    titles = {"area": "mean accuracy over sizes", "worst": "correct under every warp of the grid"}
    over_runs = {
        **dict.fromkeys(("accuracy", "worst", "area", "true_score", "calibration"), within_one),
        "mcnemar_p": largest,  # significant only if it is significant in every run
    }


class Sweep(Analysis):
    """Accuracy, score of the true class and calibration of networks at each size of a warp."""

    Result = Result
    examples = "capsviz sweep --checkpoint mnist --checkpoint mnist-resnet --n 1000  # about 90 s"
    figure_set = {"step": 10.0, "grid": 3}
    slow = True
    headline = ("area", "worst")

    def measure(
        self,
        networks,
        images,
        labels,
        *,
        dataset,
        progress=iter,
        warp: Annotated[
            str, "rotation, scale, shear, shift-x or shift-y.", Flag("--warp", metavar="NAME")
        ] = "rotation",
        start: Annotated[
            float | None, "First size.", Default("the warp's own"), Flag("--from")
        ] = None,
        stop: Annotated[float | None, "Last size.", Default("the warp's own"), Flag("--to")] = None,
        step: Annotated[float | None, "Step between sizes.", Default("the warp's own")] = None,
        grid: Annotated[
            int, "Number of rotations in the worst-case grid.", Flag("--grid", metavar="ODD")
        ] = 5,
        worst: Annotated[bool, "Accuracy in the worst case of the grid."] = True,
        fill: Fill = "black",
        seed: Seed = 0,
    ) -> Result:
        """Give the same transformed images to all networks, one size at a time.

        Memory does not grow with the number of sizes. The first network is the reference.
        """
        from capsviz.analyses.sweep import measure as measures
        from capsviz.statistics import calibration, comparison
        from capsviz.tracing import score_name
        from capsviz.transforms import warps

        sizes = warps.sizes(warp, start, stop, step)
        everywhere = measures.grid_warps(grid) if worst else []
        images, labels = images.cpu(), labels.cpu()
        counts = comparison.draw_resamples(len(images), seed=seed)
        models, frame = list(networks.values()), tuple(images.shape[2:])
        given = (models, images, labels)
        curves, mcnemar, area = [], [], np.zeros((len(models), len(images)))
        for size, weight in zip(progress(sizes), measures.area_weights(sizes), strict=True):
            by = warps.family_matrix(warp, size, frame)
            right, true, winner = measures.look(*given, by, fill)
            mcnemar.append([comparison.mcnemar(right[0], one) for one in right])
            curves.append(
                {
                    "accuracy": comparison.compare_means(right, counts),
                    "true_score": comparison.compare_means(true, counts, shares=False),
                    "calibration": calibration.compare_calibration(winner, right, counts),
                }
            )
            area += weight * right
        always = measures.worst_case(*given, progress(everywhere), fill) if worst else None
        own = warps.family(warp)
        return Result(
            warp=warp,
            unit=own.unit,
            label=own.label,
            sizes=sizes,
            names=list(networks),
            scores=[score_name(model, images) for model in models],
            **{name: stack([one[name] for one in curves], 1) for name in curves[0]},
            mcnemar_p=np.array(mcnemar).T,
            area=measures.mean_area(area, counts),
            worst=None if always is None else comparison.compare_means(always, counts),
            grid=grid if worst else None,
            n=len(images),
            dataset=dataset,
            resamples=comparison.RESAMPLES,
            fill=fill,
        )

    def check(self, *, grid, worst, **_) -> None:
        if not worst and grid != 5:
            raise ValueError("--no-worst uses no grid: drop --grid")

    def verdict(self, result) -> str:
        first, last = (f"{size:g}{result.unit}" for size in result.sizes[[0, -1]])
        where, names = f"{result.warp} from {first} to {last}", result.names
        if len(names) > 1:
            return f"{len(names)} networks on {result.n:,} {result.dataset} images, {where}."
        lowest = result.sizes[result.accuracy.value[0].argmin()]
        return f"The accuracy of {names[0]} over {where} is lowest at {lowest:g}{result.unit}."

    def stem(self, base, result) -> str:
        return f"sweep-{result.warp}-{result.dataset}-{result.n}-images"
