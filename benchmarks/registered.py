"""The tables of docs/networks.md, from docs/networks.json, which `benchmarks.registry` writes."""

from __future__ import annotations

import ast
import json

from benchmarks import ROOT
from capsviz.results.tables import markdown

EXACT = 1e-6  # largest difference of numbers near 1


def networks(words: str = "what") -> str:
    """Return what there is to say of public networks: "what", "checks" or "count"."""
    entries = json.loads((ROOT / "docs/networks.json").read_text("utf-8"))
    return {"what": _what, "checks": _checks, "count": _count}[words](entries)


def exact(entry: dict) -> bool:
    """Return whether poses and what they are made of were compared, and all parts are equal."""
    found = entry["measured"]["compared"]
    inside = "poses" in found and {"votes", "couplings"} & set(found)
    return bool(inside) and all(off <= EXACT for _, off in found.values())


def _count(entries: list[dict]) -> str:
    checked = sum("checks" in entry["measured"] for entry in entries)
    return (
        f"The table lists {len(entries)} networks, of which {checked} were checked. In "
        f"{sum(map(exact, entries))} of them every part that was compared differs by 1e-6 at most."
    )


def _link(entry: dict) -> str:
    url = f"https://github.com/{entry['repository']}"
    return f"[{entry['name']}]({url}) `{entry['commit'][:7]}`"


def _what(entries: list[dict]) -> str:
    header = ["repository, commit", "date", "input", "arguments of `wrap`", "found",
              "compared: largest difference", "analyses run"]  # fmt: skip
    rows = []
    for entry in entries:
        changed = f" ({entry['changed']})" * bool(entry["changed"])
        found = entry["measured"]["compared"]
        parts = [f"{name} {off:.1g}" for name, (_, off) in found.items()]
        rows.append([
            _link(entry) + changed, entry["date"], entry["input"], _arguments(entry["file"]),
            entry["measured"]["found"], ", ".join(parts).replace("0e+00", "0") or "none",
            ", ".join(entry["ran"]),
        ])  # fmt: skip
    return markdown(header, rows).replace("--:", ":--")


def _arguments(file: str) -> str:
    """Return the arguments of `capsviz.wrap` in a file, beside the network, shape and number."""
    calls = (node for node in ast.walk(ast.parse(file)) if isinstance(node, ast.Call))
    call = next((node for node in calls if ast.unparse(node.func) == "capsviz.wrap"), None)
    if call is None:
        return ""
    given = {one.arg: ast.unparse(one.value) for one in call.keywords}
    if "example" in given:
        given["example"] = "..."
    return ", ".join(f"`{key}={value}`".replace("|", "\\|") for key, value in given.items())


def _checks(entries: list[dict]) -> str:
    header = ["repository", "FAIL", "WARN", "SKIPPED", "PASS"]
    rows = []
    for entry in entries:
        if (found := entry["measured"].get("checks")) is None:
            continue
        said = [
            " · ".join(f"`{name}`: {_short(text)}" for name, text in found[status].items())
            for status in ("FAIL", "WARN")
        ]
        counts = [str(len(found[status])) for status in ("SKIPPED", "PASS")]
        rows.append([entry["name"], *said, *counts])
    return markdown(header, rows).replace("--:", ":--")


def _short(text: str) -> str:
    """Return the measurement of a verdict, without what is expected."""
    for end in (", expected", "; expected", ": expected"):
        text = text.partition(end)[0]
    return text.replace("|", "\\|")
