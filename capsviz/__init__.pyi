"""Types of the names that `capsviz.__getattr__` imports on first use."""

from capsviz import checks as checks
from capsviz import data as data
from capsviz import plot as plot
from capsviz import testing as testing
from capsviz.checkpoint import load as load
from capsviz.data import Dataset as Dataset
from capsviz.nn.computation import literal as literal
from capsviz.nn.models.capsnet import CapsNet as CapsNet
from capsviz.pictures import open_image as open_image
from capsviz.plot import overlay as overlay
from capsviz.tracing import Trace as Trace
from capsviz.tracing import trace as trace
from capsviz.training.cards import save as save
from capsviz.wrapping.wrapping import wrap as wrap

__version__: str

def datasets() -> list[str]: ...
def models() -> list[str]: ...
