"""Which class do couplings carry? One image's votes, another image's couplings.

`capsviz transplant --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.transplant.pair import OnePair, Result
from capsviz.analyses.transplant.pairs import OverPairs, Statistics
from capsviz.analyses.transplant.pairs_by_capsules import ByCapsules, Parts
from capsviz.analyses.transplant.pairs_by_dose import ByDose, Doses
from capsviz.analyses.transplant.pairs_by_iterations import ByIterations, Rounds

__all__ = ["ByCapsules", "ByDose", "ByIterations", "Doses", "OnePair", "OverPairs", "Parts",
           "Result", "Rounds", "Statistics"]  # fmt: skip
