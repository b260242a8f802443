"""Two networks on one image: how do couplings, evidence and predictions differ?

`capsviz side-by-side --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.side_by_side.image import OneImage, Result
from capsviz.analyses.side_by_side.statistics import OverImages, Statistics

__all__ = ["OneImage", "OverImages", "Result", "Statistics"]
