"""Data sets keep the contract; local files come first; damage and absence are said plainly."""

import dataclasses
import gzip
import inspect
import socket
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.mnist_files import FOLDERS, write_idx

from capsviz import data, discovery
from capsviz.data import _files
from capsviz.inputs.samples import other_class

IDX = ("mnist", "fashion_mnist", "kmnist", "emnist_digits")
FETCHED = ("mnist", "svhn", "cifar10")


@pytest.fixture
def idx_root(tmp_path):
    for name in FOLDERS:
        write_idx(tmp_path / name, 5_020, 12)
    return tmp_path


# cifar10 and affnist_like, which take long, are read by tests of their own
@pytest.mark.parametrize("name", sorted({*data.available()} - {"cifar10", "affnist_like"}))
def test_what_a_file_says_of_its_images_and_classes_is_what_it_loads(name):
    module = discovery.load("capsviz.data", name, what="dataset")
    if not hasattr(module, "IMAGE_SHAPE"):
        return
    try:
        part = data.here({"name": name, "options": {}}, "test")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert (part.image_shape, part.classes) == (module.IMAGE_SHAPE, module.CLASSES)


@pytest.mark.parametrize("name", IDX)
@pytest.mark.parametrize(("split", "n"), [("train", 20), ("validation", 5_000), ("test", 12)])
def test_an_idx_data_set_is_read_from_local_files(idx_root, name, split, n):
    part = data.load(name, split, idx_root)
    assert part.images.shape == (n, 1, 28, 28) and part.images.dtype == torch.uint8
    assert part.labels.dtype == torch.int64 and len(part) == n and len(part.classes) == 10
    assert (part.name, part.split) == (name, split)


def test_emnist_stands_upright(idx_root):
    """Its files hold each image column by column."""
    raw = (idx_root / "EMNIST/raw/emnist-digits-test-images-idx3-ubyte").read_bytes()[16:]
    stored = np.frombuffer(raw, np.uint8).reshape(-1, 28, 28)
    part = data.load("emnist_digits", "test", idx_root)
    for row, column in ((3, 20), (27, 0), (14, 9)):
        assert part.images[5, 0, row, column] == stored[5, column, row]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "MNIST/raw"),
        ("kmnist", "KMNIST/raw"),
        ("emnist_digits", "EMNIST/raw"),
        ("svhn", "SVHN"),
        ("cifar10", "cifar-10-batches-py"),
        ("mnist_c", "mnist_c"),
        ("smallnorb", "smallNORB"),
        ("affnist", "affNIST"),
    ],
)
def test_a_missing_data_set_says_where_its_files_belong(tmp_path, name, place):
    with pytest.raises(FileNotFoundError, match=rf"is not in .*{tmp_path}/{place}\b.*--data-dir"):
        data.here({"name": name}, "test", tmp_path)
    with pytest.raises(FileNotFoundError):  # also of those that are never downloaded
        data.load(name, "test", tmp_path, download=False)


@pytest.mark.parametrize("name", FETCHED)
def test_a_download_that_fails_is_one_line(name, tmp_path, monkeypatch):
    def silent(*_, **__):
        assert socket.getdefaulttimeout() == _files.TIMEOUT_SECONDS
        raise urllib.error.URLError("no answer")

    monkeypatch.setattr(urllib.request, "urlopen", silent)
    with pytest.raises(FileNotFoundError, match=r"^.*its download failed \(.*no answer.*-dir$"):
        data.load(name, "test", tmp_path)
    assert socket.getdefaulttimeout() is None


def test_digits_are_those_of_scikit_learn_and_split_as_it_splits():
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    labels, seed = source.target, {"random_state": 0}
    rest, test = train_test_split(range(1797), test_size=360, stratify=labels, **seed)
    train, validation = train_test_split(rest, test_size=180, stratify=labels[rest], **seed)
    for split, places in (("train", train), ("validation", validation), ("test", test)):
        part = data.load("digits", split)
        assert part.labels.tolist() == labels[places].tolist()
        small = torch.from_numpy(source.images[places]).float()[:, None] / 16
        large = torch.nn.functional.interpolate(small, (20, 20), mode="bicubic")
        expected = (torch.nn.functional.pad(large, (4,) * 4).clamp(0, 1) * 255).round()
        assert torch.equal(part.images, expected.byte())


def test_blocks_of_the_digits_are_runs_of_the_file_and_leave_none_out():
    from sklearn.datasets import load_digits

    source, read = load_digits(), []
    for block in range(5):
        parts = [data.load("digits", split, block=block) for split in data.SPLITS]
        _, validation, test = parts
        assert len(validation) == 180 and sum(map(len, parts)) == 1797
        start, end = 1797 * block // 5, 1797 * (block + 1) // 5
        assert test.labels.tolist() == source.target[start:end].tolist()
        after = [source.target[k % 1797] for k in range(end, end + 180)]
        assert validation.labels.tolist() == after
        images = torch.cat([part.images for part in parts]).flatten(1)
        assert len(images.unique(dim=0)) == len(np.unique(source.data, axis=0))
        read += test.labels.tolist()
    assert read == source.target.tolist()
    for wrong in (5, -2, "2", True):
        with pytest.raises(ValueError, match="block of the data set 'digits' must be"):
            data.load("digits", "test", block=wrong)


def test_a_folder_that_is_not_there_is_a_slip_with_the_digits_too(tmp_path):
    assert len(data.load("digits", "test", tmp_path)) == 360
    with pytest.raises(FileNotFoundError, match=r"no folder '.*nowhere'"):
        data.load("digits", "test", tmp_path / "nowhere")


@pytest.mark.parametrize("name", data.available())
def test_all_but_split_and_root_is_given_by_name_and_has_a_default(name):
    module = discovery.load("capsviz.data", name, what="dataset")
    split, root, *options = inspect.signature(module.load).parameters.values()
    assert (split.name, root.name, root.default) == ("split", "root", None)
    kinds = (bool, int, float, str, tuple)
    assert all(p.kind is p.KEYWORD_ONLY and type(p.default) in kinds for p in options)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("digits", {"eye": "left"}, "the data set 'digits' takes no eye, got 'left': expected "),
        ("digits", {"download": 1}, "download of the data set 'digits' must be a valid boolean"),
        ("smallnorb", {"ey": "left"}, "takes no ey, got 'left': expected eye or image_size$"),
        ("multimnist", {"pairs": "x"}, "pairs of .* must be a valid integer, got 'x'"),
        ("multimnist", {"pairs": True}, "pairs of .* must be a valid integer, got True"),
        ("smallnorb", {"eye": 3}, "eye of the data set 'smallnorb' must be a valid string, got 3"),
    ],
)
def test_options_that_a_data_set_has_not_or_of_another_kind_are_refused(name, option, message):
    with pytest.raises(ValueError, match=message):
        data.load(name, "test", **option)


def test_asking_for_more_images_than_there_are_says_how_many_there_are():
    part = data.load("digits", "test")
    for ask, wrong, message in (
        (part.first, (361,), "expected 1 to 360"), (part.first, (0,), "expected 1 to 360"),
        (part.nth_of_class, (11, 0), "no class 11"),
        (part.nth_of_class, (2, 1000), "expected an index from 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ask(*wrong)


@pytest.mark.mnist
def test_real_mnist_is_the_canonical_one(mnist_root):
    part = data.load("mnist", "test", mnist_root)
    assert len(part) == 10_000 and part.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert len(data.load("mnist", "train", mnist_root)) == 55_000


def test_a_data_loader_takes_a_data_set():
    part = data.load("digits", "test")
    image, label = part[-1]
    assert image.dtype == torch.float32 and image.shape == (1, 28, 28)
    assert torch.equal(image, part.images[-1] / 255) and label == int(part.labels[-1])
    assert isinstance(part, torch.utils.data.Dataset)
    images, labels = zip(*torch.utils.data.DataLoader(part, batch_size=100), strict=True)
    assert torch.equal(torch.cat(images), part.images / 255)
    assert torch.equal(torch.cat(labels), part.labels)
    assert len(list(part)) == 360
    with pytest.raises(IndexError):
        part[360]
    with pytest.raises(TypeError, match=r"dataset\.take"):
        part[:3]


def test_a_digest_tells_images_labels_and_shapes_apart():
    part = data.load("digits", "test")
    others = [
        part.first(10),
        dataclasses.replace(part, labels=part.labels.flip(0)),
        dataclasses.replace(part, images=part.images.flip(0)),
        part.pad(1),
    ]
    assert len({one.digest for one in (part, *others)}) == 5
    assert data.load("digits", "test").digest == part.digest == part.take(slice(None)).digest


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("MNIST/raw", "{}-{}-ubyte"),
        ("MNIST", "{}.{}-ubyte"),
        ("raw", "{}-{}-ubyte.gz"),
        (".", "{}.{}-ubyte"),
    ],
)
def test_mnist_is_read_where_and_as_people_have_it(idx_root, tmp_path, place, name):
    expected = data.load("mnist", "test", idx_root)
    folder = tmp_path / "here" / place
    folder.mkdir(parents=True)
    for what, kind in (("t10k-images", "idx3"), ("t10k-labels", "idx1")):
        content = (idx_root / f"MNIST/raw/{what}-{kind}-ubyte").read_bytes()
        content = gzip.compress(content) if name.endswith(".gz") else content
        (folder / name.format(what, kind)).write_bytes(content)
    assert data.load("mnist", "test", tmp_path / "here").digest == expected.digest


def test_files_of_the_same_names_in_a_folder_of_another_data_set_are_not_taken(idx_root):
    for place in ("FashionMNIST", "FashionMNIST/raw"):
        with pytest.raises(FileNotFoundError, match="MNIST is not in"):
            data.load("mnist", "test", idx_root / place, download=False)
    assert len(data.load("fashion_mnist", "test", idx_root / "FashionMNIST/raw")) == 12


COUNTED = {"multimnist": "pairs", "affnist_like": "variants"}


@pytest.fixture(params=COUNTED)
def load(request, monkeypatch):
    """Load one of them, of 40 digits of scikit-learn in place of MNIST."""
    few = lambda split, root, *, download: data.load("digits", split).first(40)  # noqa: E731
    monkeypatch.setattr("capsviz.data.mnist.load", few)
    name = request.param
    return lambda count, **more: data.load(name, "test", **{COUNTED[name]: count}, **more)


def test_the_first_images_do_not_depend_on_how_many_are_made_and_too_many_are_refused(load):
    one, again, other, two = load(1), load(1), load(1, seed=1), load(2)
    assert one.digest == again.digest and one.digest != other.digest
    assert len(one) == 40 and len(two) == 80 and two.first(40).digest == one.digest
    assert not torch.equal(two.images[40:], one.images)
    module = data.module_of(one.name)
    assert (one.image_shape, one.classes) == (module.IMAGE_SHAPE, module.CLASSES)
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        load(0)
    with pytest.raises(MemoryError, match=r"with 1,000,000,000 (\w+) .* GB.*ask for fewer \1"):
        load(1_000_000_000)


def test_another_class_is_named_before_it_is_numbered():
    classes = ("1", "3", "7", "10")
    assert [other_class(classes, k, None, None) for k in (1, 3, 7, 10, 2)] == [0, 1, 2, 3, 2]
    data = SimpleNamespace(dataset=SimpleNamespace(labels=torch.tensor([0, 2, 2])))
    assert other_class(classes, None, data, SimpleNamespace(label=0)) == 2
