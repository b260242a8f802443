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


def rows(found: dict) -> list[Row]:
    """The figures that were aimed at, in the order of the table."""

    def over(allocator: str, what: str, name: str, floor: str) -> float:
        part = found["steps"][allocator][what]
        return part[name]["median_ms"] / part[floor]["median_ms"]

    def step(allocator, what, floor, label, bar):
        part = found["steps"][allocator][what]
        literal = over(allocator, what, "literal", floor) if "literal" in part else None
        return Row(label, literal, over(allocator, what, "capsviz", floor), bar)

    def taken(size, bar):
        part = found["memory"][size]
        ours, literal = (part[name] / part["floor"] for name in ("capsviz", "literal"))
        return Row(f"memory of a step, {size} × {size} px / floor", literal, ours, bar)

    training = found["epoch"]["images_per_second"]
    speed = found["data_path"]["images_per_second"]["capsviz"]
    return [
        step("stock", "train fp32", "floor", "training step, fp32 / floor", 1.20),
        step(
            "kept", "train fp32", "plain floor", "the same, freed memory kept / plain floor", 1.05
        ),
        Row(
            "training step, bf16 / our fp32",
            None,
            over("stock", "train bf16", "capsviz", "capsviz fp32"),
            0.65,
        ),
        step("stock", "train bf16", "floor", "training step, bf16 / floor in bf16", None),
        step("stock", "evaluate 128", "floor", "evaluation of 128 images / floor", 1.15),
        step(
            "stock", "evaluate 128", "plain floor", "evaluation of 128 images / plain floor", None
        ),
        step("stock", "evaluate 1", "floor", "evaluation of one image / floor", None),
        taken("28", 1.30),
        taken("40", 1.50),
        Row(
            "data path with shifts / a DataLoader of PIL pictures",
            None,
            found["data_path"]["ratio"],
            20,
            "faster",
        ),
        Row("data path with shifts / training", None, speed / training, 20, "faster"),
        Row("one epoch of MNIST, bf16, with validation", None, found["epoch"]["seconds"], 180, "s"),
    ]


def table(found: dict) -> str:
    """The README's table."""
    machine, times = found["about"], found["commands"]
    seconds = ", ".join(
        f"`{name}` {line['median_ms'] / 1e3:.1f} s"
        for name, line in times.items()
        if name.startswith("capsviz")
    )
    whole = found["figures"]["capsviz figures"]["median_ms"] / 1e3
    return "\n".join(
        [
            "| | literal | capsviz | aim |",
            "|---|---|---|---|",
            *(row.text() for row in rows(found)),
            "",
            "Batches of 128, medians of rounds in which contenders take turns; "
            f"{machine['processor']}, {machine['hardware']}, torch "
            f"{machine['provenance']['versions']['torch']}. Whole commands, cold: {seconds}, "
            f"`capsviz figures` {whole:.0f} s.",
        ]
    )
