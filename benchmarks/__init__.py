"""Measurements, and what is generated from them.

Measurements end in one JSON each in results/; gpu leaves a folder of them under runs/.
"""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
