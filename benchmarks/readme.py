"""Fill the marked parts of README.md and docs/: outputs of commands, and tables from result files.

`python -m benchmarks.readme` rewrites them and the pictures of docs/findings.md. `--no-run` keeps
the outputs of commands. A marked part is between `<!-- NAME -->` and `<!-- end -->`.
"""

import re
import shlex
import subprocess
import sys

from benchmarks import ROOT, findings
from benchmarks.tables import PARTS

PART = re.compile(r"<!-- (?P<name>[a-z]+)(: (?P<words>[^>]+))? -->\n.*?<!-- end -->", re.DOTALL)
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if PART.search(path.read_text(encoding="utf-8"))
]


def output(command: str) -> str:
    """Return a command and its output, as a code block."""
    words = shlex.split(command)
    if words[1] != "evaluate":  # evaluate draws nothing
        words += ["--force", "--output", "runs/readme"]
    run = [sys.executable, "-m", *words]
    done = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True)
    if "embedded" in done.stderr:
        sys.exit("the pages show MNIST, which was not found: set CAPSVIZ_DATA")
    return f"```\n$ {command}\n{done.stdout.rstrip()}\n```"


def fill(text: str, *, run: bool) -> str:
    """Return a page with its marked parts regenerated."""

    def replace(match: re.Match) -> str:
        name, words = match["name"], match["words"]
        if name == "run":
            if not run:
                return match[0]
            body = output(words)
        else:
            body = PARTS[name](words) if words else PARTS[name]()
        return f"{match[0].partition(chr(10))[0]}\n{body.rstrip()}\n<!-- end -->"

    return PART.sub(replace, text)


def main() -> None:
    """Rewrite all generated parts."""
    if set(sys.argv[1:]) - {"--no-run"}:
        sys.exit(__doc__)
    findings.write()
    for path in (ROOT / name for name in PAGES):
        text = fill(path.read_text("utf-8"), run="--no-run" not in sys.argv)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
