"""Numbers and names in words."""

import numpy as np
import pytest

from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import LONGEST, number, shortened, strongest, word_for


def test_long_names_are_shortened_and_stay_different():
    names = [f"a rather long name of a class, {k:02d}" for k in range(20)]
    same = ["a rather long name that ends alike", "a rather long other that ends alike", "cat"]
    for long in (names, same):
        short = shortened(long)
        assert len(set(short)) == len(long) and max(map(len, short)) <= LONGEST
    assert shortened(["cat", "dog"]) == ["cat", "dog"] and shortened(same)[2] == "cat"


def test_what_is_no_number_is_a_dash():
    assert number(float("nan"), ".1%") == "–" and number(0.5, ".1%") == "50.0 %"
    nothing = Estimate(np.array(np.nan), np.full(2, np.nan))
    assert f"{nothing:.2f}" == "–" and f"{nothing * -1:.1%}" == "–"


def test_where_all_are_alike_none_is_the_strongest():
    assert strongest(["a", "b"], np.array([0.1, 0.1 + 1e-8])) == "all classes alike"
    assert strongest(["a", "b"], np.array([0.1, 0.2])) == "b"


@pytest.mark.parametrize(
    ("ends", "word"), [((0.1, 0.2), "more"), ((-0.2, -0.1), "less"), ((-0.1, 0.2), "neither")]
)
def test_a_difference_is_told_by_its_interval(ends, word):
    assert word_for(Estimate(np.mean(ends), np.array(ends)), "more", "less", "neither") == word
