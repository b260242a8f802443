"""Brightness: 0.5 is added to every pixel, cut at 1. Nothing is random.

The authors raise the value of HSV colours; for a grey pixel that is its grey. Half a
grey value (127.5 is added to whole ones) goes to the even neighbour; theirs may be the other.
"""

ADDED = 0.5  # severity 5


def corrupt(images, generator):
    """Brighten each image."""
    return (images + ADDED).clamp(max=1)
