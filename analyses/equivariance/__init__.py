"""Do poses change lawfully when the image is warped, and can the warp be read off?

`capsviz equivariance --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.equivariance.affine import REACH, AffineMaps, Result, compute
from capsviz.analyses.equivariance.law import Law, Laws

__all__ = ["REACH", "AffineMaps", "Law", "Laws", "Result", "compute"]
