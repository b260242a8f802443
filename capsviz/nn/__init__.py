"""Tensors in, tensors out: capsule mathematics, routings, layers, decoders, networks."""
