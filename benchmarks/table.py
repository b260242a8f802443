"""The README's table of speed and memory, from results/speed.json, with what was aimed at."""

from typing import NamedTuple


class Row(NamedTuple):
    """A line of the table."""

    what: str
    literal: float | None  # the literal network's figure, where it has one
    ours: float
    bar: float | None  # what we aim at; None: stated only
    unit: str = ""  # "": a ratio; "s"; or "faster", where more is better

    @property
    def met(self) -> bool:
        """Whether the aim was reached; of speeds ("x as fast") more is better."""
        if self.bar is None:
            return True
        return self.ours >= self.bar if self.unit == "faster" else self.ours <= self.bar

    def text(self) -> str:
        """As Markdown."""
        sign = "≥" if self.unit == "faster" else "≤"
        unit = {"": "", "s": " s", "faster": "×"}[self.unit]
        digits = 0 if self.unit else 2
        literal = "" if self.literal is None else f"{self.literal:.2f}"
        mark = "" if self.met else " (missed)"
        aim = "" if self.bar is None else f"{sign} {self.bar:.{digits}f}{unit}{mark}"
        return f"| {self.what} | {literal} | **{self.ours:.{digits}f}{unit}** | {aim} |"


def rows(result: dict) -> list[Row]:
    """The figures that were aimed at, in the order of the table."""

    def step(allocator, what, label, floor, bar=None):
        part = result["steps"][allocator][what]
        literal = None
        if "literal" in part and floor != "capsviz fp32":  # it ran apart: no rounds to compare
            literal = part["literal"]["median_ms"] / part[floor]["median_ms"]
        kept = "kept: " if allocator == "kept" else ""
        ratio = part["capsviz"]["ratio"] / part[floor]["ratio"]
        return Row(f"{kept}{label} / {floor.replace('capsviz', 'our')}", literal, ratio, bar)

    def taken(size, bar):
        part = result["memory"][size]
        ours, literal = (part[name] / part["floor"] for name in ("capsviz", "literal"))
        return Row(f"memory of a step, {size} × {size} px / floor", literal, ours, bar)

    def halved(allocator):
        """A step in bfloat16 beside the plain floor in float32: of two series, by ours in fp32."""
        single, half = (result["steps"][allocator][f"train {kind}"] for kind in ("fp32", "bf16"))
        ratio = half["capsviz"]["ratio"] / half["capsviz fp32"]["ratio"]
        ratio *= single["capsviz"]["ratio"] / single["plain floor"]["ratio"]
        kept = "kept: " if allocator == "kept" else ""
        return Row(f"{kept}training step, bf16 / plain floor, fp32", None, ratio, 0.52)

    training = result["epoch"]["images_per_second"]
    speed = result["data_path"]["images_per_second"]["capsviz"]
    memory = result["memory"]["28 kept"] / result["memory"]["28"]["floor"]
    return [
        step("stock", "train fp32", "training step, fp32", "floor"),
        step("stock", "train fp32", "training step, fp32", "plain floor", 1.05),
        halved("stock"),
        step("stock", "train bf16", "training step, bf16", "floor"),
        step("stock", "evaluate 128", "evaluation of 128 images", "floor"),
        step("stock", "evaluate 128", "evaluation of 128 images", "plain floor", 1.10),
        step("stock", "evaluate 1", "evaluation of one image", "floor"),
        taken("28", 1.30),
        taken("40", 1.50),
        step("kept", "train fp32", "training step, fp32", "floor"),
        step("kept", "train fp32", "training step, fp32", "plain floor", 1.05),
        halved("kept"),
        step("kept", "evaluate 128", "evaluation of 128 images", "floor"),
        step("kept", "evaluate 128", "evaluation of 128 images", "plain floor", 1.10),
        Row("kept: memory of a step, 28 × 28 px / floor, not kept", None, memory, 1.30),
        Row(
            "data path with shifts / a DataLoader of PIL pictures",
            None,
            result["data_path"]["ratio"],
            20,
            "faster",
        ),
        Row("data path with shifts / training", None, speed / training, 20, "faster"),
        Row(
            "one epoch of MNIST, bf16, with validation", None, result["epoch"]["seconds"], 180, "s"
        ),
    ]


def table(result: dict) -> str:
    """The README's table."""
    machine, times = result["about"], result["commands"]
    seconds = ", ".join(
        f"`{name}` {line['median_ms'] / 1e3:.2g} s"
        for name, line in times.items()
        if name.startswith("capsviz")
    )
    return "\n".join(
        [
            "| | literal | capsviz | aim |",
            "|---|---|---|---|",
            *(row.text() for row in rows(result)),
            "",
            "Batches of 128. Times over the floor are medians of ratios within rounds, in which "
            "contenders take turns, other times quotients of two such; the literal network ran "
            "apart, its ratios are of medians. "
            f"{machine['processor']}, {machine['hardware']}, torch "
            f"{machine['provenance']['versions']['torch']}. Whole commands, cold: {seconds}.",
        ]
    )
