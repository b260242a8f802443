"""Commands that are not analyses: train, evaluate, redraw a figure from its numbers."""
