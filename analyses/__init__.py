"""Analyses: each file asks one question of a capsule network, and is one command of capsviz."""
