"""Measurements, and what is generated from them.

speed, scaling, parity and record end in one JSON each in results/; parity and record gather theirs
from a folder of runs. gpu leaves a folder of measurements under runs/.
"""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
