"""Measurements, and what is generated from them. Each file writes one JSON in results/."""

from pathlib import Path

RESULTS = Path(__file__).parent / "results"
