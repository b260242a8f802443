"""Do poses follow a transformation of the image, and can its size be predicted from them?"""

from capsviz.analyses.equivariance.affine import REACH, AffineMaps, Result
from capsviz.analyses.equivariance.law import Law, Laws

__all__ = ["REACH", "AffineMaps", "Law", "Laws", "Result"]
