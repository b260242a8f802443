"""The command of an analysis: its options, the choice between analyses, its files and errors."""

import json

import pytest
from helpers.command_line import fine, run

from capsviz import analysis, discovery, results

MODULE = '''"""How bright are the images?

A second line.
"""

from typing import Annotated, Literal, NamedTuple

from matplotlib.figure import Figure

from capsviz.analysis import Analysis, Default, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate


class Result(NamedTuple):
    """Mean brightness of one image."""

    mean: float
    name: str


class Statistics(NamedTuple):
    """Mean brightness of n images, by network."""

    mean: Estimate  # (1,)
    n: int
    names: list[str]

    axes = {"mean": ("names",)}
    formats = {"mean": ".2f"}


class Drawn(Analysis):
    def draw(self, result, *, width=7.16, part=""):
        figure = Figure(figsize=(width, 1))
        figure.add_subplot()
        return figure


class One(Drawn):
    Result = Result

    def measure(self, image, picture, *, seed: Seed = 0):
        return Result(float(image.mean()), picture.name)

    def verdict(self, result):
        return f"{result.name} has a brightness of {result.mean:.2f}."


class Many(Drawn):
    Result = Statistics

    def measure(
        self,
        networks,
        images,
        *,
        by: Annotated[Literal["mean", "median"], "How images are summarised."] = "mean",
        start: Annotated[
            float | None, Range(0, 1), Flag("--from"), Default("the darkest"), "First level."
        ] = None,
        dark: Annotated[bool, "Leave out dark images."] = True,
        names: Annotated[tuple[str, ...], "Names to leave out."] = (),
    ):
        mean = float(images.mean())
        return Statistics(Estimate([mean], [[0, 1]], len(images)), len(images), list(networks))

    def extra_files(self, result, path, **options):
        beside = path.with_suffix(".txt")
        beside.write_text(str(options))
        return [beside]
'''


@pytest.fixture
def bright(tmp_path, monkeypatch):
    """Return a function that runs the analysis as a plug-in, with the given options."""
    (tmp_path / "plugins/analyses").mkdir(parents=True)
    (tmp_path / "plugins/analyses/bright.py").write_text(MODULE)
    monkeypatch.setenv(discovery.PLUGINS, str(tmp_path / "plugins"))
    monkeypatch.chdir(tmp_path)
    return lambda *words: run("bright", *words)


SMALL = ("--checkpoint", "digits", "--output", "out", "--format", "png")


def test_one_image_is_measured_unless_n_is_given(bright, tmp_path):
    one = fine(bright(*SMALL, "--digit", 3))
    assert "digits-3-0 has a brightness of 0." in one.stdout
    assert (tmp_path / "out/bright-digits-3-0.json").is_file()
    many = bright(*SMALL, "--n", 5)
    assert "mean, digits  0." in many.stdout and "[0.00, 1.00]" in many.stdout
    assert "one training run" in many.stdout
    result, about = results.read_result(tmp_path / "out/bright-digits-5-images.json")
    assert result.n == 5 and result.names == ["digits"]
    assert about["analysis"] == "bright" and about["options"]["dark"] is True


def test_an_option_that_only_one_analysis_has_chooses_that_analysis(bright, tmp_path):
    done = fine(bright(*SMALL, "--by", "median", "--no-dark", "--names", "a", "--names", "b"))
    (path,) = tmp_path.glob("out/*.txt")  # the extra file
    assert path.read_text() == str(
        {"by": "median", "start": None, "dark": False, "names": ("a", "b")}
    )
    assert f"wrote {path.relative_to(tmp_path)}" in done.stderr


def test_json_prints_the_result_instead_of_the_findings(bright):
    done = bright(*SMALL, "--n", 3, "--json")
    assert json.loads(done.stdout)["n"] == 3 and "wrote" in done.stderr


def test_help_has_the_question_its_own_options_first_and_the_common_ones(bright):
    text = bright("--help").stdout
    assert "How bright are the images?" in text and "A second line" not in text
    order = ["--seed", "--by", "--from", "--dark / --no-dark", "--n N", "--digit", "--checkpoint"]
    places = [text.index(one) for one in [*order, "--output", "--json", "--explain"]]
    assert places[:5] == sorted(places[:5]) and all(p >= 0 for p in places)
    assert "[default: the darkest" in text
    assert "A second line." in bright("--explain").stdout


def test_a_parameter_that_is_neither_given_nor_an_option_is_named(bright, tmp_path):
    path = tmp_path / "plugins/analyses/dull.py"
    path.write_text(MODULE.replace("image, picture,", "image, weather,"))
    done = run("dull", *SMALL)
    assert done.exit_code == 2 and "takes 'weather', which is neither given nor" in done.stderr


def test_an_option_that_all_commands_have_is_refused(bright, tmp_path):
    path = tmp_path / "plugins/analyses/dull.py"
    path.write_text(MODULE.replace('"--from"', '"--seed"'))
    done = run("dull", *SMALL)
    assert done.exit_code == 2 and "dull: all commands have --seed" in done.stderr


def test_options_are_read_from_the_signature(bright):
    one, many = analysis.of("bright")
    assert one.given == ("image", "picture") and many.given == ("networks", "images")
    by, start, dark, names = many.options
    assert by.choices == ("mean", "median") and start.range == (0, 1)
    assert start.flag.name == "--from"
    assert dark.kind is bool and names.several and names.kind is str
