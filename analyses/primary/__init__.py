"""What do single primary capsules hold, and does reconstruction need the couplings?

`capsviz primary --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.primary.image import Result, Single, decode_single
from capsviz.analyses.primary.statistics import Couplings, Statistics, evaluate

__all__ = ["Couplings", "Result", "Single", "Statistics", "decode_single", "evaluate"]
