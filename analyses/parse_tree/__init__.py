"""Do primary capsules choose their class by the image, by position, or always the same?

`capsviz parse-tree --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.parse_tree.image import Result, Trees, trees
from capsviz.analyses.parse_tree.statistics import ParseTree, Statistics, evaluate
from capsviz.analyses.parse_tree.training import Epochs, Trajectory, follow

__all__ = [
    "Epochs", "ParseTree", "Result", "Statistics", "Trajectory", "Trees", "evaluate", "follow",
    "trees",
]  # fmt: skip
