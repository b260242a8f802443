"""The report is one self-contained file for one network or several, and opens in a browser."""

import re
from html.parser import HTMLParser
from typing import NamedTuple

import numpy as np
import pytest
from helpers.browser import NEEDED, browser
from helpers.command_line import fine, run

from capsviz.results import report as reports
from capsviz.results.report import choose
from capsviz.statistics import numbers
from capsviz.statistics.estimate import Estimate


def invoke(*arguments):
    return run("report", *arguments)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The file of a report on one network, and its contents."""
    path = tmp_path_factory.mktemp("report") / "r.html"
    collect, collected = reports.collect, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            reports, "collect", lambda *a, **k: collected.append(collect(*a, **k)) or collected[0]
        )
        done = invoke("digits", "--n", 12, "--only", "routing,reconstruct", "--output", path)
    assert done.exit_code == 0, done.output
    count = int(re.match(r"(\d+) figures in", done.stdout)[1])
    assert count >= 3 and path.read_text(encoding="utf-8").count("<figure>") == count
    return path, collected[0]


@pytest.fixture(scope="module")
def path(written):
    return written[0]


@pytest.fixture(scope="module")
def page(path):
    return path.read_text(encoding="utf-8")


class Addresses(HTMLParser):
    """Everything that a page would load or link to, and its ids."""

    def __init__(self, text):
        super().__init__()
        self.found, self.ids = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "srcset"):
                self.found.append(value)
            if name == "id":
                self.ids.append(value)


def test_the_file_contains_everything_that_it_shows(page):
    every = Addresses(page)
    assert {a.partition(":")[0] for a in every.found if not a.startswith("#")} == {"data"}
    assert {a[1:] for a in every.found if a.startswith("#")} <= set(every.ids)
    assert len(every.ids) == len(set(every.ids))
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert not re.search(r"@import|url\(", style) and "<script" not in page
    assert len(page.encode()) < 8_000_000


def test_it_has_card_figures_numbers_words_checks_and_provenance(page):
    for part in (
        "<dd>1,129,360</dd>", "dynamic, 3 iterations", "12 of the 360 test images of digits",
        "What to see", "What not to conclude", "Method", "Numbers with their intervals",
        "PASS", "weights sha256", "true class, predicted class</th><th>0</th><th>1</th>",
    ):  # fmt: skip
        assert part in page, part
    count = page.count("<figure>")
    assert page.count("<figcaption>") == count


def test_with_many_classes_only_the_largest_confusions_are_listed(written, monkeypatch):
    monkeypatch.setattr(reports, "MANY", 9)
    contents = written[1]._replace(sections=[])  # whose pictures take seconds
    assert "<th>predicted class</th><th>images</th>" in reports.render(contents)


def test_it_begins_with_the_findings(written):
    path, contents = written
    top = path.read_text(encoding="utf-8").partition("</header>")[0]
    assert "capsnet, dynamic, 3 iterations, 1,129,360 parameters, trained on digits" in top
    (routing,) = (one for one in contents.sections if one.analysis == "routing")
    assert [one for one, _ in reports.answers(contents)] == [routing]
    answer = reports.answers(contents)[0][1]
    (network,) = contents.networks
    for share in (network.evaluation.balanced_accuracy, network.unlike):
        assert f"<td>{100 * share:.1f} %</td>" in top
    assert answer.partition("`")[0] in top and "accuracy, iteration 1 100.00 %" in answer
    assert top.count("<img") == len(contents.sections) == 2 and "<details" not in top


def test_no_path_command_or_reason_enters_the_page(written):
    path, contents = written
    absent = [("digits", "curves", "no file /home/somebody/epochs.csv")]
    left = contents._replace(sections=contents.sections[:1], left_out=absent)
    page = reports.render(left)
    assert "Not measured: curves." in page and "/home" not in page and str(path) not in page
    assert "--output" not in page


@pytest.mark.slow
def test_several_networks_are_compared_on_the_same_images(tmp_path):
    out = tmp_path / "r.html"
    words = ["digits", "mnist-resnet", "--n", 2, "--dataset", "digits"]
    words += ["--only", "reconstruct,sweep"]
    fine(invoke(*words, "--output", out))
    page = out.read_text(encoding="utf-8")
    assert "<h1>digits beside mnist-resnet</h1>" in page and "difference to digits, paired" in page
    assert re.search(r"[+-]\d+\.\d \[[+-]\d+\.\d, [+-]\d+\.\d\] points", page)
    assert "Not measured: " in page and "reconstruct of mnist-resnet" in page
    assert "Not checked: it has no capsules" in page
    assert "sweep <small>compared</small>" in page and "corrupt" not in page


def test_without_any_figure_no_page_is_written(tmp_path):
    out = tmp_path / "r.html"
    words = ["mnist-resnet", "--dataset", "digits", "--only", "routing", "--n", 8]
    done = invoke(*words, "--output", out)
    assert done.exit_code == 1 and not out.exists()
    assert "nothing could be drawn: this network has no capsules" in done.stderr


def test_without_names_several_networks_share_a_few_analyses():
    assert {"sweep", "corrupt", "routing"} < set(choose((), True)) < set(choose((), False))
    assert "affnist" not in choose((), False)
    assert choose(("sweep",), True) == ["sweep"]
    assert choose(("parse-tree",), False) == choose(("parse_tree",), False) == ["parse_tree"]
    with pytest.raises(ValueError, match=r"unknown analysis .nope., .*, parse-tree, "):
        choose(("nope",), False)


def test_numbers_have_the_names_that_the_result_gives():
    class Result(NamedTuple):
        hits: Estimate
        curve: Estimate
        names: list[str]

        axes = {"hits": ("names",)}

    apart = Estimate(np.array([0.0, -0.2]), np.array([[0.0, 0], [-0.3, -0.1]]))
    two = Estimate(np.array([0.5, 0.25]), np.array([[0.4, 0.6], [0.1, 0.5]]), 9, apart)
    long = Estimate(np.zeros(30), np.zeros((30, 2)))
    result = Result(two, long, ["a", "b"])
    row = numbers.rows(result)[1]
    assert (row.label, row.text, row.interval, row.one.n) == ("hits, b", "0.25", "[0.1, 0.5]", 9)
    assert row.paired == "-0.2 [-0.3, -0.1] from a"
    Result.formats, Result.references = {"hits": ".1%"}, {"hits": "1 iteration"}
    assert numbers.cells(result)[0][-1] == "difference from 1 iteration, points"
    assert numbers.cells(result)[1][1][-1] == "-20.0 [-30.0, -10.0]"
    assert len(numbers.rows(result)) == 2 and numbers.left_out(result) == ["curve"]
    for axis, names in (
        (None, ["0", "1"]),
        ("control|type {}", ["control", "type 0"]),
        ("step {1}", ["step 1", "step 2"]),
    ):
        Result.axes = {"hits": (axis,)}
        assert [row.condition for row in numbers.rows(result)] == names


@pytest.mark.slow
@NEEDED
def test_it_opens_in_a_browser_wide_narrow_dark_and_offline(path):
    with browser() as chromium:
        for width, scheme in ((1280, "light"), (390, "light"), (1280, "dark")):
            context = chromium.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
            )
            page, asked = context.new_page(), []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollHeight") < 1900
            page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("[...document.images].every(i => i.naturalWidth > 100)")
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
            context.close()


def test_a_picture_with_many_lines_is_embedded_as_pixels(written, monkeypatch):
    _, contents = written
    figure = contents.sections[0].figures[0]
    assert reports.picture(figure).startswith("data:image/svg")
    monkeypatch.setattr(reports, "LARGEST_SVG", 100)
    assert reports.picture(figure).startswith("data:image/png")
