"""Test whether the routing map is faithful: does the class score fall without its pixels?

`capsviz faithfulness --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.faithfulness.pixels import OneImage, OverImages, Result, Statistics
from capsviz.analyses.faithfulness.units import OverUnits, Units

__all__ = ["OneImage", "OverImages", "OverUnits", "Result", "Statistics", "Units"]
