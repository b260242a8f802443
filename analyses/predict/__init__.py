"""Your own pictures: their classes, and whether the network knows their kind.

`capsviz predict --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.predict.cli import command
from capsviz.analyses.predict.result import Predict, Result

__all__ = ["Predict", "Result", "command"]
