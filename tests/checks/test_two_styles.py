"""Twenty planted bugs in two styles of code: each raises its own alarm and no other."""

import pytest
from helpers.planted_bugs import of_status
from helpers.two_styles import BUGS, CLASSES, SHAPE, STYLES, VARIANTS, built

from capsviz import checks


def examined(style, bug):
    network = built(style, bug)
    return checks.run(network, SHAPE, CLASSES, loss=network.loss)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_raises_its_own_alarm_and_no_other(style, bug):
    check, status = BUGS[bug]
    report = examined(style, bug)
    alarms = {(one.check, one.status) for one in report.verdicts if one.status in ("FAIL", "WARN")}
    assert alarms == {(check, status)}, report.text()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_correct_variant_fails_nothing(style, variant):
    report = examined(style, variant)
    assert of_status(report, "FAIL") == [], report.text()
    if variant == "compressed":
        assert "not with the capsules before" in report.verdict("unsquashed_primary").message
    if not variant:
        assert of_status(report, "WARN") == [], report.text()
        assert len(of_status(report, "PASS")) == 28, report.text()
