"""Linear algebra of small matrices, on one thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """A function within which NumPy's linear algebra has one thread, and SciPy's; not torch's.

    The threads of OpenBLAS wait for each other by spinning. For matrices of some hundred rows they
    gain nothing, and beside other work they lose many times what they take.
    """

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
