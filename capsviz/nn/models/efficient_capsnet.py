"""Efficient-CapsNet: a slim stem and self-attention routing (Mazzia, Salvetti & Chiaberge 2021).

arXiv:2101.12491: 161,824 weights without the decoder, for MNIST. It is a CapsNet with other
defaults; each option, such as the routing, can be changed.
"""

from functools import partial
from typing import Any

from capsviz.nn.models import capsnet

OPTIONS: dict[str, Any] = {
    "stem": "slim",
    "routing": "self_attention",
    "vote_std": 0.0395,  # He initialisation with the fan of the authors' code: sqrt(2 / 1280)
}
build = partial(capsnet.build, **OPTIONS)  # options and errors are those of CapsNet
