"""Predict the classes of your own pictures, and warn if they are unlike the training data.

`capsviz predict --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.predict.cli import command
from capsviz.analyses.predict.result import Predict, Result

__all__ = ["Predict", "Result", "command"]
