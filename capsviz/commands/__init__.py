"""Commands that are not analyses, such as train, evaluate and redraw."""
