"""Intervals, comparisons, detection, moments: of NumPy arrays, without torch."""
