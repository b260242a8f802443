"""A network and its data, opened from what a user names: for commands, page, report, benchmarks."""
