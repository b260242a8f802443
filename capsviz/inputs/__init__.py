"""Open the network and data that a user names: for commands, page, report and benchmarks."""

USUAL_CLASS = 2  # class of the image that is shown; the last class if there are fewer


def usual_class(dataset) -> int:
    """Return the class that is shown if the user names none."""
    return min(USUAL_CLASS, len(dataset.classes) - 1)
