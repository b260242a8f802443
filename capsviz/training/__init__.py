"""Train a network from a recipe to a checkpoint: data, loop, history, evaluation."""
