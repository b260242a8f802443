"""What does each dimension of a class capsule draw? Sheets, and effects in numbers.

`capsviz perturb --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.perturb.image import Result, Sheet, change_each
from capsviz.analyses.perturb.measure import captions, measure_class
from capsviz.analyses.perturb.statistics import Effects, Statistics

__all__ = ["Effects", "Result", "Sheet", "Statistics", "captions", "change_each", "measure_class"]
