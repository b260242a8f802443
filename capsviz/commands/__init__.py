"""Commands that are no analyses: train, evaluate, redraw a figure from its numbers."""
