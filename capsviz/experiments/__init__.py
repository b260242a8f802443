"""Published protocols that train or attack: affNIST, tables made anew, decoders of children."""
