"""What columns make of results, where it is more than a field."""

import numpy as np

from capsviz.results.leaderboard import columns
from capsviz.statistics.estimate import Estimate


class Routed:
    """What `routing` gave of networks whose first round varies from run to run, and none other."""

    controls = ("shuffled",)
    entropy_nats = np.zeros(3)

    def __init__(self, first: float):
        own = Estimate(np.full(3, 0.99), np.tile([0.985, 0.995], (3, 1)), 500)
        gain = np.tile([0.09 - first, 0.09 + first], (3, 1))
        self.accuracy = Estimate(own.value, own.ci95, 500, Estimate(np.full(3, 0.09), gain, 500))
        control = Estimate(np.array([0.988]), np.array([[0.980, 0.994]]), 500)
        change = Estimate(np.array([0.088]), np.array([[0.088 - first, 0.088 + first]]), 500)
        self.control_accuracy = Estimate(control.value, control.ci95, 500, change)


def test_the_interval_of_a_control_is_the_narrower_of_two_that_are_too_wide():
    """That by the first round, which varies, or that by accuracies as if of other images."""
    for first, ends in ((0.1, (-0.002 - np.hypot(0.008, 0.005), -0.002 + np.hypot(0.006, 0.005))),
                        (0.001, (-0.004, 0.0))):  # fmt: skip
        ((_, one),) = columns.instead("shuffled", Routed(first))
        np.testing.assert_allclose(one.value, -0.002)
        np.testing.assert_allclose(one.ci95, ends)
