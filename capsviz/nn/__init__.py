"""Compute with tensors alone: capsule mathematics, routings, layers, decoders, networks."""
