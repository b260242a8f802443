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

    training = result["epoch"]["images_per_second"]
    speed = result["data_path"]["images_per_second"]["capsviz"]
    memory = result["memory"]["28 kept"] / result["memory"]["28"]["floor"]
    return [
        step("stock", "train fp32", "training step, fp32", "floor", 1.20),
        step("stock", "train fp32", "training step, fp32", "plain floor"),
        step("stock", "train bf16", "training step, bf16", "capsviz fp32", 0.65),
        step("stock", "train bf16", "training step, bf16", "floor"),
        step("stock", "evaluate 128", "evaluation of 128 images", "floor", 1.15),
        step("stock", "evaluate 128", "evaluation of 128 images", "plain floor"),
        step("stock", "evaluate 1", "evaluation of one image", "floor"),
        taken("28", 1.30),
        taken("40", 1.50),
        step("kept", "train fp32", "training step, fp32", "floor"),
        step("kept", "train fp32", "training step, fp32", "plain floor", 1.05),
        step("kept", "train bf16", "training step, bf16", "capsviz fp32", 0.65),
        step("kept", "evaluate 128", "evaluation of 128 images", "floor", 1.15),
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
        f"`{name}` {line['median_ms'] / 1e3:.1f} s"
        for name, line in times.items()
        if name.startswith("capsviz")
    )
    whole = result["figures"]["capsviz figures"]["median_ms"] / 1e3
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
            f"{machine['provenance']['versions']['torch']}. Whole commands, cold: {seconds}, "
            f"`capsviz figures` {whole:.0f} s, at an earlier commit with fewer figures.",
        ]
    )
