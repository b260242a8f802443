"""Rotate a digit through a full circle: which class is predicted at each angle?

`capsviz rotate --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.rotate.image import Result, Rotate, animation, changes
from capsviz.analyses.rotate.statistics import RotateMany, Statistics, angles

__all__ = ["Result", "Rotate", "RotateMany", "Statistics", "angles", "animation", "changes"]
