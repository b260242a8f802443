"""How `probes` of several training runs are made one, field by field."""

from capsviz.statistics.replicates import at_most_one, mean, within_one

R2 = ("r2", "control", "selectivity", "informed", "cycle")
WITHIN = ("disentanglement", "completeness", "cycle_read", "path_read", "path_activation")
FEWEST = ("n", "fitted", "probed", "couples")
OVER_RUNS = {
    "spread": mean,
    "seconds": sum,
    **dict.fromkeys(FEWEST, min),
    **dict.fromkeys(R2, at_most_one),
    **dict.fromkeys(WITHIN, within_one),
}
