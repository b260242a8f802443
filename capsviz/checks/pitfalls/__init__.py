"""The checks, by their subject; docs/check.md says how to add one."""
