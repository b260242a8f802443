"""The checks, one file each; docs/check.md says how to add one."""
