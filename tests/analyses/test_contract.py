"""Every analysis, by discovery: its contract, its freedom from torch and from files."""

import json

import click
import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.other_devices import elsewhere, same
from helpers.plain_capsnet import Foreign

from capsviz import analysis as contract
from capsviz import discovery, results
from capsviz.cli import main
from capsviz.tracing import needs, record

NAMES = discovery.names("capsviz.analyses")
ANALYSES = {f"{name}-{type(one).__name__}": one for name in NAMES for one in contract.of(name)}
MEASURING = {
    key: one
    for key, one in ANALYSES.items()
    if type(one).measure is not contract.Analysis.measure and one.given
}


@pytest.mark.parametrize("name", NAMES)
def test_every_analysis_has_a_command_a_page_and_a_kind_of_result(name):
    with click.Context(main) as context:
        assert isinstance(main.get_command(context, name.replace("_", "-")), click.Command)
    assert contract.of(name), "no subclass of Analysis, or of results"
    page = contract.explanation(name)
    for heading in ("## Method", "## What to see", "## What not to conclude"):
        assert heading in page


@pytest.mark.parametrize("key", MEASURING)
def test_options_have_a_help_text_and_a_default_within_their_range(key):
    for option in MEASURING[key].options:
        assert option.help.endswith("."), option
        if isinstance(option.default, int | float) and option.default is not None:
            low, high = option.range
            assert low is None or option.default >= low, option
            assert high is None or option.default <= high, option


@pytest.mark.parametrize(
    ("words", "stem"),
    [
        ("corrupt --n 30", "digits-30-images"),
        ("equivariance --n 40 --fit 9 --warp rotation --seeds 0", "rotation-seeds-0"),
        ("equivariance --n 40 --fit 9 --warp shear --seeds 0 --law", "seeds-0-law"),
        ("faithfulness --digit 9", "digits-9-0"),
        ("faithfulness --n 4 --steps 3", "digits-4-images-steps-3"),
        ("parse-tree --digit 9", "digits-9-0-0-0"),  # the class after 9 is 0
        ("parse-tree --n 40", "digits-40-images"),
        ("parts --n 30", "digits-30-images"),
        ("perturb --n 30", "digits-2-30-images"),
        ("probes --digit 9 --index 3", "digits-9-3-to-4"),
        ("probes --n 60 --fit 20", "digits-60-images-fit-20"),
        ("reconstruct --n 30", "digits-30-images"),
        ("routing --digit 3", "digits-3-0"),
        ("transplant", "digits-2-0-3-0"),
        ("transplant --n 40", "digits-40-images"),
        ("transplant --n 40 --by capsules", "digits-couplings-by-capsules-40-images"),
        ("tsne --n 30 --method pca", "pca-digits-poses-30-images"),
    ],
)
def test_a_command_writes_the_numbers_that_it_prints(words, stem, analyse, tmp_path):
    name, *options = words.split()
    done = analyse(name.replace("-", "_"), *options, "--json")
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.glob("*.json")
    result, about = results.read_result(path)
    assert about["analysis"] == name.replace("-", "_") and path.stem.endswith(stem)
    assert json.loads(done.stdout) == json.loads(results.to_json(result))
    assert list(tmp_path.glob(f"{path.stem}*.svg"))


@pytest.mark.parametrize("key", ANALYSES)
def test_an_analysis_says_what_it_needs_of_a_network(key):
    known = {*record.PARTS, *record.ALIASES, "grid", "decode", "iterations", "interventions"}
    assert set(ANALYSES[key].needs) <= known | {"from_children"}


def test_what_a_network_lacks_is_told_before_anything_is_computed(monkeypatch):
    model = build_tiny(reconstruction_weight=0.0)
    model.look = lambda *_, **__: pytest.fail("computed")
    with pytest.raises(ValueError, match="has no decoder: capsviz perturb needs"):
        needs.require(model, contract.of("perturb")[0].needs, "capsviz perturb")
    with pytest.raises(ValueError, match="has no capsules: capsviz routing needs"):
        needs.require(torch.nn.Linear(2, 2), contract.of("routing")[0].needs, "capsviz routing")
    needs.require(torch.nn.Linear(2, 2), contract.of("sweep")[0].needs, "capsviz sweep")


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("affine-Affine", {"trained_px": 2}),
        ("faithfulness-OverImages", {"steps": 3}),
        ("reconstruct-Reconstruct", {}),
        ("routing-OverImages", {}),
        ("sweep-Sweep", {"step": 90.0, "grid": 1}),
        ("transplant-OverPairs", {}),
        ("tsne-Tsne", {"method": "pca"}),
    ],
)
def test_images_may_be_on_another_device(key, options, digits):
    network, names, sample = Foreign(), [str(k) for k in range(10)], [part[:40] for part in digits]
    known = {"network": network, "networks": {"a": network}, "classes": names, "dataset": "x"}

    def measured(images, labels):
        every = known | {"images": images, "labels": labels}
        own = {name: one for name, one in every.items() if name in ANALYSES[key].given}
        return ANALYSES[key].measure(**own, **options)

    assert same(measured(*sample), measured(*elsewhere(*sample)))
