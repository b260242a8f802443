"""Which class do couplings carry? One image's votes, another image's couplings."""

from capsviz.analyses.transplant.pairs import OnePair, OverPairs, Result, Statistics
from capsviz.analyses.transplant.pairs_by_dose import ByDose, Doses
from capsviz.analyses.transplant.parts import ByCapsules, ByIterations, Parts, Rounds

__all__ = ["ByCapsules", "ByDose", "ByIterations", "Doses", "OnePair", "OverPairs", "Parts",
           "Result", "Rounds", "Statistics"]  # fmt: skip
