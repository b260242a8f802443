"""`assert_capsnet`: run all checks in the tests of your own project."""

from torch import nn

from capsviz.checks import Report, run

__all__ = ["assert_capsnet"]


def assert_capsnet(
    module: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    classes: int | None = None,
    **facts,
) -> Report:
    """Run all checks and return the report; AssertionError with its text if one fails.

        def test_my_network_is_a_capsule_network():
            assert_capsnet(MyCapsNet(), image_shape=(1, 28, 28), classes=10)

    `facts` are passed to `capsviz.checks.run`.
    """
    __tracebackhide__ = True
    report = run(module, image_shape, classes, **facts)
    if report.failures:
        raise AssertionError(report.text())
    return report
