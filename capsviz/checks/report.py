"""The verdicts of all checks, as text, Markdown or JSON."""

from collections import Counter
from typing import NamedTuple

from capsviz.checks.verdict import STATUSES, Verdict


class Report(NamedTuple):
    """The verdicts on one network, worst first."""

    network: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()  # warnings that concern all verdicts

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The failed checks."""
        return tuple(one for one in self.verdicts if one.status == "FAIL")

    @property
    def exit_status(self) -> int:
        """0 if nothing fails, else 1."""
        return 1 if self.failures else 0

    def verdict(self, check: str) -> Verdict:
        """Return the verdict of one check; ValueError if that check was not run."""
        for one in self.verdicts:
            if one.check == check:
                return one
        known = ", ".join(one.check for one in self.verdicts)
        raise ValueError(f"no verdict of '{check}', expected one of: {known}")

    def counts(self) -> str:
        """Return the number of verdicts of each status, such as "1 FAIL, 26 PASS"."""
        count = Counter(one.status for one in self.verdicts)
        return ", ".join(f"{count[s]} {s}" for s in STATUSES if count[s])

    def text(self) -> str:
        """Return the report for a terminal: a line for each verdict, then the counts."""
        lines = []
        for one in self.verdicts:
            lines.append(f"{one.status:<7} {one.check}: {one.message}")
            if one.status == "FAIL":
                lines += [f"        breaks: {one.breaks}", f"        fix:    {one.fix}"]
                lines.append(f"        paper:  {one.paper}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, f"{self.network}: {self.counts()}"])

    def markdown(self) -> str:
        """Return the report as Markdown: a table, and a section for each failure."""
        lines = [f"# {self.network}", "", f"{self.counts()}.", ""]
        lines += [f"> {note}\n" for note in self.notes]
        lines += ["| status | check | measured | paper |", "|---|---|---|---|"]
        for one in self.verdicts:
            message, paper = (text.replace("|", "\\|") for text in (one.message, one.paper))
            lines.append(f"| {one.status} | `{one.check}` | {message} | {paper} |")
        for one in self.failures:
            lines += ["", f"## {one.title}", "", f"{one.message}.", ""]
            lines += [f"- Breaks: {one.breaks}", f"- Fix: {one.fix}", f"- Paper: {one.paper}"]
        return "\n".join(lines) + "\n"

    def as_dict(self) -> dict:
        """Return the report as a dictionary, for JSON."""
        verdicts = [one._asdict() for one in self.verdicts]
        return {**self._asdict(), "exit_status": self.exit_status, "verdicts": verdicts}
