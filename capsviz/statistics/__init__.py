"""Intervals, comparisons, detection and image moments, on NumPy arrays, without torch."""
