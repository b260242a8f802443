"""Published protocols that train or attack: affNIST, published tables, decoders, attacks."""
