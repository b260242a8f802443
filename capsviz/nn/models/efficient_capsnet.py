"""Efficient-CapsNet: a slim stem and self-attention routing (Mazzia, Salvetti & Chiaberge 2021).

arXiv:2101.12491: 161,824 weights beside the decoder for MNIST. A CapsNet with other options: any of
them may be given, another routing among them.
"""

from functools import partial
from typing import Any

from capsviz.nn.models import capsnet

OPTIONS: dict[str, Any] = {
    "stem": "slim",
    "routing": "self_attention",
    "vote_std": 0.0395,  # He's for the fan that the authors' code sees: sqrt(2 / 1280)
}
build = partial(capsnet.build, **OPTIONS)  # its options and errors
