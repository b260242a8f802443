"""Linear algebra of small matrices, on one thread."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Context manager and decorator: linear algebra of NumPy and SciPy has one thread; not torch's.

    The threads of OpenBLAS wait for each other by spinning. For matrices of some hundred rows they
    gain nothing, and beside other work they lose many times what they take.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
