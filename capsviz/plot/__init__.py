"""Draw parts of a trace into axes of your own.

    trace = capsviz.trace(model, images)
    fig, (left, right) = plt.subplots(1, 2, layout="constrained")
    capsviz.plot.couplings(trace, axes=left)
    capsviz.plot.evidence(trace, axes=right)

Each function draws one image of the trace, takes axes or makes new ones, and returns them. Nothing
is saved and no style is set. Whole figures, with their numbers and controls, are what the analyses
draw.
"""

from capsviz.plot.coupling_map import couplings
from capsviz.plot.evidence_map import evidence

__all__ = ["couplings", "evidence"]
