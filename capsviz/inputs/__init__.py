"""A network and its data, opened from what a user names: for commands, page, report, benchmarks."""

USUAL_CLASS = 2  # of the image that is shown; or the last, of fewer


def usual_class(dataset) -> int:
    """Return the class that is shown where none is named."""
    return min(USUAL_CLASS, len(dataset.classes) - 1)
