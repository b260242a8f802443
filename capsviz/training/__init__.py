"""From a recipe to a checkpoint: data, loop, history, evaluation."""
