"""Decoders on MNIST: fully connected or deconvolution, each without and with batch norm."""

from dataclasses import replace

from capsviz.reproductions import Cell, routed

LABELS = ("Decoder", "Batch norm")
TITLES = {"fully_connected": "fully connected", "deconvolution": "deconvolution"}
EPOCHS = 25
# Reconstruction losses; the same table has accuracies of 99.51 to 99.55 %.
PUBLISHED = {
    ("fully_connected", False): "21.62",
    ("fully_connected", True): "13.12",
    ("deconvolution", False): "10.87",
    ("deconvolution", True): "9.52",
}


def cells() -> list[Cell]:
    """The paper's network with each of the four decoders."""
    made = []
    for (decoder, norm), loss in PUBLISHED.items():
        name, recipe = routed(3)
        if (decoder, norm) != ("fully_connected", False):
            name = f"mnist-{decoder}{'-norm' if norm else ''}"
            options = {**recipe.options, "decoder": decoder, "decoder_norm": norm}
            recipe = replace(recipe, options=options)
        labels = (TITLES[decoder], "yes" if norm else "no")
        made.append(Cell(name, labels, recipe, f"loss {loss}, 25 epochs (ethanleet/CapsNet)"))
    return made
