"""Intervals, comparisons, detection, moments: numpy alone."""
