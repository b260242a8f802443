"""The verdicts of all checks, as text, Markdown or JSON."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from capsviz.checks.verdict import STATUSES, Verdict

MARKS = {"fails": "✗", "told": "·", "cannot be seen": "?", "passes": "✓"}


class Report(NamedTuple):
    """What was found in one network, worst first."""

    network: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()  # of the whole, as that its verdicts are weak

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts that fail."""
        return tuple(one for one in self.verdicts if one.status == "fails")

    @property
    def exit_status(self) -> int:
        """0 where nothing fails, else 1."""
        return 1 if self.failures else 0

    def verdict(self, check: str) -> Verdict:
        """The verdict of one check; ValueError for one that was not made."""
        for one in self.verdicts:
            if one.check == check:
                return one
        known = ", ".join(one.check for one in self.verdicts)
        raise ValueError(f"no verdict of '{check}', expected one of: {known}")

    def counts(self) -> str:
        """How many verdicts there are of each kind, in words."""
        count = Counter(one.status for one in self.verdicts)
        return ", ".join(f"{count[s]} {s}" for s in STATUSES if count[s])

    def text(self) -> str:
        """For a terminal; what fails comes with what it breaks and how to mend it."""
        width = max((len(one.check) for one in self.verdicts), default=0)
        lines = [f"{self.network}: {self.counts()}", *(f"note: {note}" for note in self.notes), ""]
        for one in self.verdicts:
            lines.append(f"{MARKS[one.status]} {one.status:<15}{one.check:<{width}}  {one.said}")
            if one.status == "fails":
                pad = " " * (19 + width)
                lines += [f"{pad}breaks: {one.breaks}", f"{pad}mend:   {one.mend}"]
                lines.append(f"{pad}paper:  {one.paper}")
        return "\n".join(lines)

    def markdown(self) -> str:
        """A page with one table, and a section for each failure."""
        lines = [f"# {self.network}", "", f"{self.counts()}.", ""]
        lines += [f"> {note}\n" for note in self.notes]
        lines += ["| verdict | check | found | paper |", "|---|---|---|---|"]
        lines += [
            f"| {MARKS[one.status]} {one.status} | {one.title} (`{one.check}`) | "
            f"{one.said.replace('|', chr(92) + '|')} | {one.paper} |"
            for one in self.verdicts
        ]
        for one in self.failures:
            lines += ["", f"## {one.title}", "", f"{one.said}.", ""]
            lines += [f"- Breaks: {one.breaks}", f"- Mend: {one.mend}", f"- Paper: {one.paper}"]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict:
        """For JSON: NaN and infinities become null."""
        return {
            "network": self.network,
            "exit_status": self.exit_status,
            "notes": list(self.notes),
            "verdicts": [
                {**one._asdict(), "numbers": {k: _finite(v) for k, v in one.numbers.items()}}
                for one in self.verdicts
            ],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
