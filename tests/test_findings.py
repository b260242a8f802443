"""docs/findings.md states what the shipped results support, and nothing that they do not."""

import json
import re
from dataclasses import replace
from fnmatch import fnmatch

import numpy as np
import pytest
from helpers.training_runs import recipe

from benchmarks import ROOT, dots, findings, preregistered
from benchmarks import shipped as results
from capsviz.results import read_result
from capsviz.statistics.intervals import wilson


@pytest.mark.parametrize("name", findings.FINDINGS)
def test_a_finding_holds_and_its_picture_is_up_to_date(name):
    one = findings.FINDINGS[name]()
    assert one.holds and all((ROOT / source).exists() for source in one.sources)
    assert len(one.rows) <= 5 and {len(row) for row in one.rows} == {len(one.header)}
    assert "nan" not in one.table().split()
    page = findings.PAGE.read_text(encoding="utf-8")
    picture = findings.FOLDER / f"{name}.svg"
    assert picture.read_text(encoding="utf-8") == one.picture(), "run `make readme`"
    assert f"](findings/{name}.svg)" in page


def test_the_page_is_short():
    page = findings.PAGE.read_text(encoding="utf-8")
    unread = r"<!-- .*?<!-- end -->|```.*?```|\[!\[.*?\)\]\(.*?\)"  # tables, commands, pictures
    prose = re.sub(unread, "", page, flags=re.DOTALL)
    assert 500 < len(prose.split()) < 1825


def test_every_finding_of_the_page_is_in_the_readme():
    titles = findings.titles().splitlines()
    assert len(titles) == len(findings.FINDINGS) == 11
    assert not any(character.isdigit() for title in titles for character in title.partition(" ")[2])


def test_numbers_are_drawn_where_they_lie_and_controls_are_grey():
    number = dots.Number("2 [1, 3]", (2.0, 1.0, 3.0))
    names = ["value", "control: a", "another"]
    picture = dots.draw("points", names, [("a & b", [number, "–", number])])
    assert "a &amp; b" in picture and picture.count("<circle") == 5  # three in the legend
    assert picture.count(f'fill="{dots.GREY}"') == 1  # in the legend: it has no number
    assert picture.count(f'fill="{dots.COLOURS[1]}"') == 2
    assert dots._ticks(1.0, 3.0) == [1, 1.5, 2, 2.5, 3] and dots._ticks(-0.3, 0.9)[0] == -0.5


def section(name):
    """The part of the page that a finding is, in one line: before its table, and after it."""
    page = " ".join(findings.PAGE.read_text(encoding="utf-8").split())
    (whole,) = (one for one in page.split(" ## ") if f"<!-- finding: {name} -->" in one)
    before, _, rest = whole.partition(f"<!-- finding: {name} -->")
    return before, rest.partition("<!-- end -->")[2]


@pytest.mark.parametrize("name", findings.FINDINGS)
def test_an_opposite_that_shipped_results_hold_is_said_in_the_paragraph(name):
    paragraph, after = section(name)
    searches = findings.FINDINGS[name]().searches
    assert searches and all(one.looked for one in searches if one.said != "stay although")
    for one in searches:
        assert (one.said in paragraph) == bool(one.found), one.what
    assert all(f"**{part}:**" in after for part in ("Known before", "Refuted by"))
    assert "```" in after


@pytest.mark.parametrize(
    ("finding", "field", "factor"),
    [
        (findings.detection, "undetected", 0.1),  # the attack evades in fewer than half
        (findings.iterations, "accuracy", -1),  # one iteration is more accurate
        (findings.lawful, "mean", -1),
    ],
)
def test_an_opposite_is_found_where_it_is(monkeypatch, finding, field, factor):
    plain, before = findings.everywhere, finding().searches

    def other(pattern, kind):
        return [
            (name, one._replace(**{field: getattr(one, field) * factor}))
            for name, one in plain(pattern, kind)
        ]

    monkeypatch.setattr(findings, "everywhere", other)
    pairs = zip(before, finding().searches, strict=True)
    assert any(len(after.found) > len(one.found) for one, after in pairs)


def doctored(monkeypatch, **fields):
    """Give some fields of the results in figures/ other values, where they have them."""
    plain = findings.shipped

    def other(pattern):
        one = plain(pattern)
        known = {
            name: change(one.result) for name, change in fields.items() if hasattr(one.result, name)
        }
        return one._replace(result=one.result._replace(**known))

    monkeypatch.setattr(findings, "shipped", other)


def share(condition, value):
    """Return a change of the share that follows the donor under a condition."""

    def change(result):
        shares, k = result.as_partner, result.conditions.index(condition)
        values, ends = shares.value.copy(), shares.ci95.copy()
        values[k], ends[k] = value, (value - 0.05, value + 0.05)
        return replace(shares, value=values, ci95=ends)

    return change


@pytest.mark.parametrize(
    ("finding", "fields"),
    [
        (findings.transplant, {"as_partner": share("other-class donor", 0.5)}),
        (findings.transplant, {"as_partner": share("other-class donor, shuffled", 0.9)}),
        (findings.transplant, {"half": lambda result: result.half * 2}),
        (findings.transplant, {"follow": lambda result: result.follow * 0}),
        (findings.lawful, {"mean": lambda result: result.mean * 0}),
        (findings.maps, {"routed_less": lambda result: result.routed_less * -1}),
        (findings.detection, {"undetected": lambda result: result.undetected * 0}),
    ],
)  # fmt: skip
def test_a_finding_that_the_numbers_do_not_support_does_not_hold(monkeypatch, finding, fields):
    assert finding().holds
    doctored(monkeypatch, **fields)
    assert not finding().holds and "no longer support" in finding().table()


def test_of_equal_scores_no_network_is_ahead(monkeypatch):
    plain = findings.over_runs

    def equal(recipe, analysis, **fields):
        return plain("mnist-capsules-decoder", analysis, **fields)

    monkeypatch.setattr(findings, "over_runs", equal)
    assert not findings.broken().holds


def test_training_with_three_iterations_is_compared_with_one_by_seed():
    pairs = findings.iteration_pairs()
    folder = ROOT / "trained/reproduce/10-epochs"
    one, three = (
        json.loads((folder / f"mnist-routing-{r}-1.json").read_text())["results"]["test"]
        for r in (1, 3)
    )
    gain = three["accuracy"] - one["accuracy"]
    assert pairs["10-epochs/mnist-routing-1"][1] == pytest.approx(gain)


SEEDS = range(10, 20)
ACCURACY = 0.99 + 0.001 * np.sin(np.arange(10.0))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "SEEDS", tmp_path)
    monkeypatch.setattr(results, "BESIDE", tmp_path)
    return tmp_path


def write_affine(folder, name, outside):
    """Write a result of `affine` over runs; it is a shipped one with other accuracies outside."""
    place = "trained/seeds/mnist-slim-uniform-10-epochs/affine-*.json"
    (path,) = ROOT.glob(place)
    about = json.loads(path.read_text(encoding="utf-8"))
    about["runs"]["seeds"] = list(SEEDS)
    values = [[[0.99, 0.95, one]] for one in outside]
    runs = about["result"]["accuracy"]["estimate"]["runs"]
    runs.update(shape=[len(outside), 1, 3], data=np.ravel(values).tolist())
    (folder / name / "affine-x.json").write_text(json.dumps(about))


@pytest.mark.parametrize(
    ("apart", "verdict", "detectable"),
    [
        (np.zeros(10), "equivalent", "0.01"),
        (0.003 + 0.0001 * np.cos(np.arange(10)), "different", "0.01"),
        (np.resize([0.003, -0.003], 10), "not settled", "0.31"),  # s.d. 0.316 points
    ],
)
def test_runs_of_a_known_difference_get_their_verdict(folder, apart, verdict, detectable):
    assert preregistered.verdicts("a") == "Not run yet: three less one iteration."
    early = [0.1, 0.2, 0.3]  # of seeds that are not in the plan
    for name, own in (("3", [*early, *(ACCURACY + apart)]), ("1", [*early[::-1], *ACCURACY])):
        recipe(folder, f"mnist-iterations-{name}", dict(zip([0, 1, 2, *SEEDS], own, strict=True)))
    header, _, row = preregistered.verdicts("a").splitlines()
    assert header.startswith("| comparison | value | pairs | difference | margin | verdict |")
    cells = row.strip("| ").split(" | ")
    assert cells[2] == "10 of 20" and cells[4:] == ["0.05", verdict, detectable]
    assert cells[3].startswith(f"{100 * apart.mean():+.2f} [")


def test_a_value_is_paired_by_seed_and_what_is_absent_is_said(folder):
    outside = 0.9 + 0.01 * np.sin(np.arange(10.0))
    for name, less in (("mnist-capsules-plain", 0.03), ("mnist-pooling-plain", 0.0)):
        recipe(folder, name, dict(zip(SEEDS, ACCURACY, strict=True)))
        write_affine(folder, name, outside - less)
    table, left = preregistered.verdicts("b").split("\n\n")
    accuracy, inside, out = (row.strip("| ").split(" | ") for row in table.splitlines()[2:])
    assert accuracy[1:6] == ["accuracy", "10 of 10", "+0.00 [-0.01, +0.01]", "0.1", "equivalent"]
    assert inside[1] == "accuracy inside" and inside[5] == "equivalent"
    assert out[3] == "-3.00 [-3.00, -3.00]" and out[5] == "different"
    missing = "without decoder (error, corruptions, AUROC, broken digits), with decoder"
    assert left == f"Not run yet: {missing}, later: both with cross-entropy."


def test_networks_compared_at_equal_parameters_are_called_what_they_are():
    def about(name):
        return json.loads((ROOT / f"trained/seeds/{name}/runs.json").read_text(encoding="utf-8"))

    for label, recipes in findings.WITHOUT_CAPSULES.items():
        without, capsules = map(about, recipes)
        assert abs(without["parameters"] / capsules["parameters"] - 1) < 0.01
        assert "decoder" not in without["model"]["config"]
        decodes = capsules["model"]["config"]["reconstruction_weight"] > 0
        assert ("(capsules with a decoder)" in label) == decodes and "both with dec" not in label
        assert "objective" not in without["model"]["config"]  # it is cross-entropy
        entropic = capsules["model"]["config"]["objective"] == "cross_entropy"
        assert ("(both with cross-entropy)" in label) == entropic


def test_shares_are_of_the_runs_whose_lengths_are_shipped_in_the_same_order():
    runs = json.loads((results.SEEDS / findings.CROSS_ENTROPY / "runs.json").read_text())["runs"]
    known = [(one["seed"], one["weights_sha256"]) for one in runs]
    shares = findings.read("broken")[findings.CROSS_ENTROPY]
    assert [(one["seed"], one["weights_sha256"]) for one in shares] == known


def test_a_share_whose_interval_includes_a_half_is_not_listed_as_less_than_half():
    (one,) = ROOT.glob("figures/leaderboard/digits-inverted-attention/parse-tree-*.json")
    share = findings.with_class(read_result(one)[0].shares[0])
    assert share.value < 0.5 < share.high
    (half,) = (s for s in findings.by_class().searches if "mean square" in s.what)
    assert "`digits-inverted-attention`" not in half.found


def test_both_shorter_series_of_nine_routings_are_searched_for_opposites():
    searches = findings.sharpness().searches
    (less,) = (s for s in searches if s.what.startswith("less accurate than uniform"))
    assert any(s.looked == less.looked for s in searches if s.what.startswith("more accurate"))
    assert less.looked == 3 * 8  # ten epochs, six and four
    assert {"max-min, after four epochs", "k-means, after four epochs"} < set(less.found)


def test_routings_that_are_said_to_train_with_cross_entropy_do():
    for name in results.SEEDS.glob(f"{findings.SLIM}*{findings.EPOCHS}"):
        config = json.loads((name / "runs.json").read_text(encoding="utf-8"))["model"]["config"]
        routing, objective = (config.get(key) for key in ("routing", "objective"))
        assert (routing in findings.WITH_CROSS_ENTROPY) == (objective == "cross_entropy")


def test_a_threshold_that_flags_a_quarter_of_unchanged_images_flags_most_attacks_as_it_is_said():
    paragraph, _ = section("detection")
    said = re.search(
        r"A threshold that flags (\d+) % of unchanged images flags most of them", paragraph
    )
    one = results.shipped("leaderboard/mnist-attention/detect-*.json").result
    threshold = np.quantile(one.validation, 1 - int(said[1]) / 100)
    flagged = (one.values[one.sets.index("adaptive 0.3"), 0] > threshold).sum()
    assert wilson(int(flagged), one.n)[0] > 0.5


def test_the_leaderboard_says_which_networks_had_fewer_images():
    said = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8").partition(" had 10,000")[0]
    patterns = re.findall(r"`(?:mnist)?-?([\w*-]+)`", said.partition("Of MNIST,")[2])
    for path in (ROOT / "trained/seeds").glob("mnist-*/runs.json"):
        few = json.loads(path.read_text(encoding="utf-8"))["terms"].get("limit") == 10_000
        named = any(fnmatch(path.parent.name, f"mnist-{one}") for one in patterns)
        assert few == named, path.parent.name
