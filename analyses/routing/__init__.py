"""Heat maps of the couplings: which capsules feed which class, and with what effect?

`capsviz routing --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.routing.image import OneImage, Result
from capsviz.analyses.routing.statistics import OverImages, Statistics

__all__ = ["OneImage", "OverImages", "Result", "Statistics"]
