"""Shipped weights: NAME.toml the recipe, NAME.safetensors the weights, NAME.json their card."""
