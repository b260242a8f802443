"""Which of slant, width, thickness and position does a pose encode? Probes, and paths.

`capsviz probes --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.probes.image import Path, Result, path_between
from capsviz.analyses.probes.statistics import Probes, Statistics, evaluate

__all__ = ["Path", "Probes", "Result", "Statistics", "evaluate", "path_between"]
