"""Networks for `torch.hub.load`, from a checkout or from where it is published.

model = torch.hub.load("path/to/capsviz", "pretrained", "mnist", source="local")
model = torch.hub.load("path/to/capsviz", "capsnet", source="local", routing="em", types=8)
"""

dependencies = ["torch", "numpy", "safetensors", "psutil", "pydantic"]


def pretrained(name: str = "mnist", *, device: str = "cpu"):
    """Trained weights with their card as `.card`: a shipped name, or the path of a checkpoint."""
    from capsviz import load

    return load(name, device=device)


def capsnet(image_shape=(1, 28, 28), classes: int = 10, **options):
    """An untrained CapsNet; options as `capsviz.CapsNet` takes them."""
    from capsviz import CapsNet

    return CapsNet(tuple(image_shape), classes, **options)
