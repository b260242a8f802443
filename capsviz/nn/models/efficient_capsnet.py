"""Efficient-CapsNet: a slim stem and self-attention routing (Mazzia, Salvetti & Chiaberge 2021).

arXiv:2101.12491: 161,824 weights beside the decoder for MNIST. A CapsNet with other options: any of
them may be given, another routing among them.
"""

from capsviz.nn.models import capsnet

OPTIONS = {
    "stem": "slim",
    "routing": "self_attention",
    "vote_std": 0.0395,  # He's for the fan that the authors' code sees: sqrt(2 / 1280)
}


def build(image_shape: tuple[int, int, int], classes: int, **options) -> capsnet.CapsNet:
    """The network; options and errors as `capsnet.build` has them."""
    return capsnet.build(image_shape, classes, **{**OPTIONS, **options})
