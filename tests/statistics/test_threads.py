"""Linear algebra on one thread."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from capsviz.statistics.threads import on_one_thread


def threads():
    """Of the libraries of linear algebra that are loaded."""
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_within_there_is_one_thread_and_outside_as_many_as_before():
    def solve(matrix, *, n):
        """Its docstring."""
        return n, threads(), np.linalg.svd(matrix)[1].tolist()

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        n, within, values = on_one_thread(solve)(np.eye(3), n=4)
        assert threads() == before
    assert n == 4 and values == [1, 1, 1] and within and set(within) == {1}
    assert on_one_thread(solve).__doc__ == "Its docstring."
