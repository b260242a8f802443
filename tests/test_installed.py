"""Source archive and wheel, installed beside nothing else of ours: names, commands, plugins."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import matplotlib
import pytest

import capsviz
from capsviz import discovery

pytest.importorskip("setuptools", reason="pip install setuptools")
pytestmark = pytest.mark.slow

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
ALONE = ("--no-deps", "--no-build-isolation", "--no-index")


def python(*words, **options):
    return subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Built from a copy of the checkout, but for its pictures; a build would leave files behind."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("sdist")
    root, links = discovery.root(), [discovery.CAPSVIZ / name for name in discovery.BESIDE]

    def ignored(folder, names):
        known = {path.name for path in links if path.is_symlink() and path.parent == Path(folder)}
        return known | {"__pycache__", "_build"}

    for path in root.iterdir():
        if path.is_file():
            shutil.copy(path, copy)
    for name in ("capsviz", "analyses", "trained", "tests", "benchmarks", "docs"):
        shutil.copytree(root / name, copy / name, ignore=ignored)
    for path in (copy / "trained").rglob("*.safetensors"):
        if path.stem != "digits":  # not opened here: its name counts, packing it is slow
            path.write_bytes(b"weights")
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(out)!r})"
    done = python("-c", code, cwd=copy)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    done = python(*PIP, "wheel", *ALONE, "--wheel-dir", out, sdist)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """Where the wheel lies in an environment of its own.

    What capsviz needs lies beside it, so that it is not fetched.
    """
    home = tmp_path_factory.mktemp("venv")
    assert python("-m", "venv", "--without-pip", home).returncode == 0
    (bin_,) = (path.parent for path in home.glob("*/python"))
    pip = ("-m", "pip", "--python", bin_ / "python", *PIP[2:])
    put = python(*pip, "install", *ALONE, "--no-compile", wheel)
    assert put.returncode == 0, put.stderr
    (own,) = home.glob("lib/python*/site-packages/capsviz/__init__.py")
    others = dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))
    (own.parents[1] / "needed.pth").write_text("\n".join(others) + "\n")
    return own.parents[1]


@pytest.fixture
def run(site, tmp_path):
    """Run the installed capsviz in a folder whose own analyses/ and trained/ must not matter."""
    for name in ("analyses", "trained", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the user')\n")
        (tmp_path / name / "rotate.py").write_text("raise RuntimeError\n")

    def invoke(*words):
        """`capsviz WORDS`, or a text of Python."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CAPSVIZ"))}
        env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        env["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # its cache of fonts takes seconds
        start = ("-c",) if "\n" in str(words[0]) else ("-m", "capsviz")
        call = [str(site.parents[2] / "bin/python"), *start, *map(str, words)]
        return subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, env=env)

    return invoke


def good(outcome):
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def packed(path):
    """The name in a wheel of a file of the checkout."""
    parts = path.relative_to(discovery.root()).parts
    return "/".join(parts if parts[0] == "capsviz" else ("capsviz", *parts))


def test_the_source_archive_holds_what_is_needed_to_test_it(sdist):
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    needed = ["Makefile", "constraints.txt", "LICENSE", "CITATION.cff", "hubconf.py"]
    needed += ["tests/conftest.py", "benchmarks/speed.py", "analyses/rotate/__init__.py"]
    assert {*needed, "trained/mnist.safetensors"} <= names


def test_the_wheel_has_one_name_and_every_file(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"capsviz"}
    files = {
        packed(path)
        for folder in ("capsviz", "capsviz.analyses", "capsviz.trained")
        for path in discovery.folder(folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(files) > 150 and files - names == set()


def test_every_command_works_beside_a_folder_of_the_same_name(run, site, tmp_path):
    text = good(run("--help"))
    for name in (*discovery.names("capsviz.analyses"), *discovery.names("capsviz.commands")):
        assert f"\n  {name.replace('_', '-')} " in text, name
    words = ["rotate", "--digit", "2", "--checkpoint", "digits", "--step", "90", "--size", "200"]
    code = "from capsviz.cli import PACKAGES, discovery, main\n"
    code += f"main({[*words, '--format', 'png']!r}, standalone_mode=False)\n"
    code += "for package in PACKAGES:\n for name in discovery.names(package):\n"
    code += "  main([name.replace('_', '-'), '--help'], standalone_mode=False)\n"
    code += "  print(discovery.load(package, name, what='command').__file__)"
    lines = good(run(code)).splitlines()
    assert lines[0].startswith("Predicted as ") and list((tmp_path / "runs/figures").glob("*.png"))
    files = [line for line in lines if line.endswith(".py") and line.startswith("/")]
    assert len(files) > 20 and all(file.startswith(f"{site}/capsviz/") for file in files)
    script = [str(site.parents[2] / "bin/capsviz"), "--version"]
    said = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path)
    assert good(said).strip() == f"capsviz, version {capsviz.__version__}"


def metadata(root, outs):
    """The METADATA that builds of the checkout write, for each URL of the project into a folder."""
    code = "import os\nfrom setuptools.build_meta import prepare_metadata_for_build_wheel as p\n"
    code += f"for os.environ['CAPSVIZ_URL'], out in {[(u, str(o)) for u, o in outs.items()]!r}:\n"
    done = python("-c", f"{code} p(out)", cwd=root)
    assert done.returncode == 0, done.stderr
    paths = [path for out in outs.values() for path in out.glob("*.dist-info/METADATA")]
    return [path.read_text(encoding="utf-8") for path in paths]


def test_the_description_has_no_link_that_leads_nowhere(sdist, tmp_path):
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path, filter="data")
    (root,) = tmp_path.glob("capsviz-*")
    url = "https://example.org/capsviz"
    (tmp_path / "with").mkdir(), (tmp_path / "without").mkdir()
    text, plain = metadata(root, {f"{url}/": tmp_path / "with", "": tmp_path / "without"})
    version = capsviz.__version__
    assert f"Version: {version}\n" in text and "Author: The capsviz authors\n" in text
    assert f"Project-URL: Source, {url}\n" in text
    targets = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", text)
    assert any(mark for mark, _ in targets)
    assert all(target.startswith(("https://", "http://")) for _, target in targets)
    for mark, target in targets:
        if target.startswith(url):
            _, kind, tag, path = target.removeprefix(url).split("/", 3)
            assert (kind, tag) == ("raw" if mark else "blob", f"v{version}")
            assert (discovery.root() / path).exists(), path
    assert "Project-URL" not in plain
    assert all(t.startswith("http") for t in re.findall(r"\]\(([^)]+)\)", plain))


def test_the_release_is_named_alike_everywhere():
    root, version = discovery.root(), capsviz.__version__
    assert f"\nversion: {version}\n" in (root / "CITATION.cff").read_text()
    day = re.search(r"\ndate-released: (.+)\n", (root / "CITATION.cff").read_text())[1]
    assert f"\n## [{version}] - {day}\n" in (root / "CHANGELOG.md").read_text(encoding="utf-8")
