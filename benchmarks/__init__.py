"""Measurements and what is generated from them."""
