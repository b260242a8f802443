"""What the commands of all analyses do alike, on an analysis of four lines."""

import json

import click
import pytest
from click.testing import CliRunner

from capsviz import discovery, results
from capsviz.cli import options

ANALYSIS = '''"""How bright are the images?

{more}
"""

from typing import NamedTuple

import click
from matplotlib.figure import Figure

from capsviz.cli.analysis import analysis


class Result(NamedTuple):
    """Mean brightness."""

    mean: float
    n: int
    names: list[str]
    picture: str | None = None


def plot(result, *, width=3.5):
    """One number."""
    figure = Figure(figsize=(width, 1))
    figure.add_subplot().set_title(f"{{result.mean:.2f}}")
    return figure


def findings(result):
    """In words."""
    return f"brightness {{result.mean:.2f}} of {{result.n}} images"


@analysis(__doc__, {kind})
@click.option("--n", type=int, help="Images.")
@click.option("--times", default=1, show_default=True, help="How often.")
def command(run, n, times):
    """Measure."""
    images, labels = run.images(n)
    names = [one.name for one in run.networks]
    for k in range(times):
        yield f"bright-{{k}}", Result(float(images.mean()), len(images), names{picture})
    if times > 1:
        yield "last", Result(0.0, 1, []), lambda path: touch(path.with_suffix(".txt"))


def touch(path):
    path.write_text("beside")
    return path
'''


@pytest.fixture
def bright(tmp_path, monkeypatch):
    """Run the analysis with these options; it is a plugin in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words, kind="", picture=""):
        place = tmp_path / f"plugins-{kind.partition('=')[0]}{bool(picture)}"
        (place / "analyses").mkdir(parents=True, exist_ok=True)
        text = ANALYSIS.format(kind=kind, picture=picture, more="A second line.")
        (place / "analyses" / "bright.py").write_text(text)
        monkeypatch.setenv(discovery.PLUGINS, str(place))
        command = discovery.load("capsviz.analyses", "bright", what="analysis").command
        return CliRunner().invoke(command, [str(word) for word in words])

    return run


SMALL = ("--checkpoint", "digits", "--output", "out", "--format", "png")


def test_it_writes_picture_and_numbers_and_says_what_it_found(bright, tmp_path):
    run = bright(*SMALL, "--n", 5)
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("brightness 0.") and "of 5 images" in run.stdout
    assert {"wrote out/bright-digits-0.png", "wrote out/bright-digits-0.json"} <= set(
        run.stderr.splitlines()
    )
    result, about = results.read_result(tmp_path / "out/bright-digits-0.json")
    assert result.n == 5 and result.names == ["digits"]
    assert about["analysis"] == "bright" and about["options"]["times"] == 1


def test_without_n_it_takes_as_many_images_as_usual(bright, monkeypatch):
    monkeypatch.setattr(options, "USUAL", 7)
    assert "of 7 images" in bright(*SMALL).stdout


def test_several_results_and_what_is_written_beside_one(bright, tmp_path):
    run = bright(*SMALL, "--n", 3, "--times", 2)
    names = {path.name for path in (tmp_path / "out").glob("*.*")}
    assert names == {
        f"{name}-times-2.{kind}"
        for name in ("bright-digits-0", "bright-digits-1", "last-digits")
        for kind in ("json", "png")
    } | {"last-digits-times-2.txt"}
    assert run.stdout.count("brightness") == 3
    assert "wrote out/last-digits-times-2.txt" in run.stderr


def test_json_is_the_result_in_place_of_the_findings(bright):
    run = bright(*SMALL, "--n", 3, "--json")
    assert json.loads(run.stdout)["n"] == 3 and "wrote" in run.stderr


def test_several_networks_are_opened_in_their_order(bright):
    words = ["--checkpoints", "digits", "--n", 3, *SMALL[2:], "--json"]
    assert json.loads(bright(*words, kind="networks=True").stdout)["names"] == ["digits"]


def test_a_picture_may_be_chosen(bright):
    more = {"kind": "picture=True", "picture": ", run.picture.name"}
    run = bright(*SMALL, "--digit", 3, "--n", 2, "--json", **more)
    assert "3" in json.loads(run.stdout)["picture"]


def test_the_help_is_the_first_line_its_own_options_and_the_common_ones(bright):
    text = bright("--help").stdout
    assert "How bright are the images?" in text and "A second line" not in text
    for option in ("--checkpoint", "--dataset", "--device", "--n", "--times", "--output", "--json"):
        assert f"{option} " in text, option
    assert "--digit" not in text and "--checkpoints" not in text
    assert text.index("--checkpoint") < text.index("--times") < text.index("--output")


def test_wrong_formats_are_refused_before_anything_is_computed(bright, tmp_path):
    run = bright(*SMALL[:2], "--format", "jpg")
    assert run.exit_code != 0 and not (tmp_path / "runs").exists()
    assert isinstance(run.exception, SystemExit | click.ClickException | ValueError)
