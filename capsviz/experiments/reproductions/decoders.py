"""Decoders on MNIST: fully connected or deconvolution, each without and with batch norm.

The published networks are others in part: their batch norm is in the encoder too, their
deconvolution has other kernels, and they were trained on all 60,000 images.
"""

from dataclasses import replace

from capsviz.experiments.reproductions import Cell, routed

LABELS = ("Decoder", "Batch norm")
TITLES = {"fully_connected": "fully connected", "deconvolution": "deconvolution"}
EPOCHS = 25
PUBLISHED = {  # test error in percent, margin loss, SSE
    ("fully_connected", False): ("0.49", "0.0058", "21.62"),
    ("fully_connected", True): ("0.46", "0.0054", "13.12"),
    ("deconvolution", False): ("0.46", "0.0050", "10.87"),
    ("deconvolution", True): ("0.45", "0.0044", "9.52"),
}


def cells() -> list[Cell]:
    """The paper's network with each of the four decoders."""
    cells = []
    for (decoder, norm), (error, margin, sse) in PUBLISHED.items():
        name, recipe = routed(3)
        if (decoder, norm) != ("fully_connected", False):
            name = f"mnist-{decoder}{'-norm' if norm else ''}"
            options = {**recipe.options, "decoder": decoder, "decoder_norm": norm}
            recipe = replace(recipe, options=options)
        labels = (TITLES[decoder], "yes" if norm else "no")
        published = f"{error}, margin {margin}, SSE {sse} (ethanleet/CapsNet, {EPOCHS} epochs)"
        cells.append(Cell(name, labels, recipe, published))
    return cells
