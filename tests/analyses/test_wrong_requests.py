"""Wrong requests to all commands: one line, status 2, and nothing is written."""

import shlex
from pathlib import Path

import click
import pytest
from helpers.command_line import refused

from capsviz import discovery
from capsviz.cli import main

NAMES = discovery.names("capsviz.analyses")
COMMON = [("--n", "0"), ("--n", "9999"), ("--digit", "11"), ("--index", "999")]
OWN = {
    "attack": [
        ("--eps", "1.5"),
        ("--only", "apgd"),
        ("--only", "apgd-ce", "--queries", "9"),
    ],
    "affine": [("--within", "99"), ("--n", "1")],
    "corrupt": [("--only", "frog"), ("--n", "1"), ("--severity", "2")],
    "detect": [("--eps", "3"), ("--eps", "0.1", "--eps", "0.1"), ("--steps", "0"), ("--n", "1")],
    "equivariance": [("--fit", "5"), ("--law", "--warp", "zoom")],
    "faithfulness": [
        ("--target", "best"),
        ("--steps", "1"),
        ("--n", "1"),
        ("--n", "9", "--index", "1"),
        ("--n", "9", "--scene", "cluttered"),
    ],
    "parse_tree": [
        ("--other", "11"),
        ("--other", "2"),  # its first image is the picture itself
        ("--seeds", "2"),
        ("--run", "nowhere"),
        ("--run", "nowhere", "--digit", "1"),
    ],
    "parts": [("--n", "1")],
    "primary": [("--decoder", "none"), ("--n", "9", "--index", "1", "--levels", "3")],
    "probes": [
        ("--other-index", "999"),
        ("--other-index", "0"),  # the picture itself
        ("--n", "1"),
        ("--n", "50", "--other-index", "1"),
        ("--n", "50", "--fit", "3"),
        ("--fit", "50"),
    ],
    "routing": [("--n", "1")],
    "sweep": [("--warp", "rotatoin"), ("--n", "1"), ("--step", "-1"), ("--grid", "2")],
    "transplant": [
        ("--donor", "11"),
        ("--donor", "2"),  # with index 0 the picture itself
        ("--donor-index", "999"),
        ("--n", "1"),
        ("--of", "children"),
        ("--of", "children", "--digit", "1"),
        ("--of", "poses", "--by", "iterations"),
        ("--iterations", "2", "--n", "20", "--by", "capsules"),
        ("--layer", "4", "--n", "20"),
    ],
    "view": [("--change", "16", "0.2")],
}  # further wrong requests are in the tests of single analyses, and by what is said below


def requests():
    """Each analysis with what every one refuses that has the option, and with its own."""
    for name in NAMES:
        command = main.get_command(click.Context(main), name.replace("_", "-"))
        known = {word for option in command.params for word in option.opts}
        common = () if isinstance(command, click.Group) else (w for w in COMMON if w[0] in known)
        yield from ((name, words) for words in (*common, *OWN.get(name, ())))


REQUESTS = list(requests())


@pytest.mark.parametrize(
    ("name", "words"), REQUESTS, ids=lambda x: x if x in NAMES else " ".join(x)
)
def test_a_wrong_request_is_refused_and_writes_nothing(name, words, analyse, tmp_path):
    refused(analyse(name, *words), usage=True)
    assert not list(tmp_path.iterdir())


SAID = [  # what a wrong request says; its status is 2
    ("rotat", "did you mean 'rotate'"),
    ("rotate --dataset minst", "unknown dataset 'minst'"),
    ("rotate --checkpoint digits --step 0", "a step above 0"),
    ("rotate --checkpoint digits --from nan", "finite number, got nan"),
    ("rotate --checkpoint digits --image x.png --digit 3", "drop --digit"),
    ("rotate --checkpoint digits --image none.png", "there is no file 'none.png'"),
    ("rotate --checkpoint digits --width triple", "width 'triple'"),
    ("rotate --checkpoint digits --device tpu", "device 'tpu'"),
    (
        "routing --checkpoint nowhere --n 5 --digit 1",
        "--digit cannot be used beside --n: drop one of them",
    ),
    ("routing --n 5 --format jpg", "unknown format 'jpg'"),
    ("primary --seed 1", "drop --seed, or add --n"),
    ("affnist --task 1/2", "drop --task or add --run"),
    ("affnist --networks capsnet-2", "unknown network 'capsnet-2'"),
    ("curves empty", "holds no training run"),
    ("predict empty", "no picture in 'empty'"),
    ("evaluate --split tset", "unknown split 'tset'"),
    ("evaluate --dataset folder", "--data-dir"),
    ("train --dataset folder --data-dir empty", "no class folders"),
    ("train nmist", "unknown recipe 'nmist'"),
    ("train --dataset digits --epochs 0", "epochs must be at least 1"),
    ("train --dataset digits --routing dynamc", "did you mean 'dynamic'"),
    ("train digits --shift-px 28", "below the 28 pixels"),
    ("train --dataset digits --image-size 32", "takes no image_size"),
    ("describe --image-shape 1 10 10", "too small"),
    ("describe --image-shape 1 40 40 --pad-px 6", "drop --pad-px"),
    ("describe mnist --checkpoint digits --classes 3", "drop recipe, --classes"),
    ("check --checkpoint digits --network own.py:build", "exclude each other"),
    ("check --checkpoint digits --image-shape 1 9 9 --classes 5", "for --network"),
    ("check --network own.py:build --classes 5", "give both"),
    ("compare nowhere", "unknown checkpoint 'nowhere'"),
    ("compare empty", "'empty' holds neither weights with a card nor results"),
    ("compare digits digits", "'digits' is named twice"),
    ("compare broken.json", "broken.json is not a card"),
    ("compare digits --columns outsid", "did you mean 'outside'"),
    ("data mnits", "unknown data set 'mnits', expected one of: "),
    ("data digits --save-figure sheet.jpg", "unknown format 'jpg'"),
    ("data digits --save-figure mine", "expected FILE.png"),
    ("data digits --export mine.csv", "expected FILE.npz"),
    ("export --to folder --part votes --checkpoint digits", "--part is for onnx and torch"),
    ("export --to torch --output empty --force --checkpoint digits", "is a folder: name a file"),
    (
        "export --to folder --network own.py:build --dataset digits",
        "networks that capsviz trained or saved",
    ),
    ("new routing 'two words' --folder x", "expected a name of letters"),
    ("report digits --only routin", "did you mean 'routing'?"),
    ("report digits --output there.html", "exists: add --force"),
    ("report digits --n 400", "expected 1 to 360"),
    ("reproduce papr", "unknown table 'papr'"),
    ("reproduce paper --seeds 0", "--seeds must be at least 1"),
    ("reproduce paper --show --limit 3", "drop --limit"),
    ("reproduce --epochs 3", "--epochs without a table: expected one of ablations"),
    ("reproduce iterations --show --folder empty", "no results"),
    ("reproduce 12", "finding 12: expected a number from 1 to 11"),
    ("reproduce 3 --seeds 2", "a finding takes --show and --folder alone: drop --seeds"),
]
ABSENT = [  # nothing was asked wrongly: the status is 1
    ("evaluate --dataset folder --data-dir nowhere", "nowhere"),
    ("rotate --data-dir nowhere", "MNIST"),
    ("rotate --dataset mnist", "--data-dir"),
    ("evaluate --dataset emnist-digits", "EMNIST"),
    ("affnist --folder nowhere", "there is no folder 'nowhere'"),
    ("reproduce iterations --show --folder nowhere", "there is no folder 'nowhere'"),
]


def no_network(*_, **__):
    raise OSError("no network")


@pytest.mark.parametrize(
    ("words", "said", "status"), [*((*row, 2) for row in SAID), *((*row, 1) for row in ABSENT)]
)
def test_a_wrong_request_says_what_is_wrong(words, said, status, bare, monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    Path("empty").mkdir()
    Path("own.py").write_text("import capsviz\ndef build():\n    return capsviz.load('digits')\n")
    Path("there.html").touch()
    Path("broken.json").write_text("{")
    before = [path for path in sorted(Path().rglob("*")) if path.is_file()]
    refused(bare(*shlex.split(words)), said, status=(status,), usage=True)
    files = [path for path in sorted(Path().rglob("*")) if path.is_file()]
    assert [path for path in files if "__pycache__" not in path.parts] == before
