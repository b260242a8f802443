"""The playground in a real browser: its networks are PyTorch's, its controls and tours work."""

import importlib.util
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pytest
import torch
from helpers import browser as browsers

import capsviz

FOLDER = Path(__file__).resolve().parent.parent / "docs/playground"
NAMES = ("mnist-attention", "digits")
READY = "document.body.dataset.ready == 'yes'"
LOOK = """async ([name, image, how]) => {
  if (how.donor) how.donor = Float32Array.from(how.donor);
  const found = await look(name, Float32Array.from(image), how);
  const last = found.lengths.slice(-found.classes);
  const drawn = await decode(name, after(found.poses, found, found.rounds - 1), argmax(last));
  return [last, found.couplings, drawn].map((part) => Array.from(part));
}"""


@pytest.fixture(scope="module")
def builder():
    source = importlib.util.spec_from_file_location("playground_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(builder, tmp_path_factory):
    """The page, opened as a file: nothing serves it, and it asks nobody."""
    if not set(NAMES) <= set(capsviz.models()):
        pytest.skip("no MNIST weights")
    for name in ("onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    if not builder.cached().exists():
        pytest.skip(f"{builder.RUNTIME} is not here: make playground fetches it")
    folder = tmp_path_factory.mktemp("site") / "playground"
    builder.build(folder, builder.cached(), NAMES)
    wrong = []
    with browsers.browser() as chromium:
        opened = chromium.new_page(viewport={"width": 1280, "height": 900})
        opened.set_default_timeout(120_000)
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.on("request", lambda one: wrong.append(one.url) if "//" in one.url[7:] else None)
        opened.goto((folder / "index.html").as_uri())
        opened.wait_for_function(READY)
        yield opened
    assert not wrong


pytestmark = [pytest.mark.slow, browsers.NEEDED]


def looked(page, name, image, **how):
    given = [name, image.flatten().tolist(), {"routing": "trained", **how}]
    return [np.array(part, np.float32) for part in page.evaluate(LOOK, given)]


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_pytorchs(page, name):
    model = capsviz.load(name)
    images = capsviz.data.load("digits", "test").first(5).images / 255
    trace = capsviz.trace(model, images)
    for k, image in enumerate(images):
        lengths, couplings, drawn = looked(page, name, image)
        assert np.abs(lengths - trace.lengths[k].numpy()).max() < 1e-5
        assert np.abs(couplings - trace.couplings[:, k].numpy().ravel()).max() < 1e-5
        assert np.abs(drawn - trace.reconstruction[k].numpy().ravel()).max() < 1e-4


def test_couplings_of_another_image_are_those_of_transplant(page):
    model = capsviz.load("digits")
    image, donor = capsviz.data.load("digits", "test").first(2).images / 255
    own = capsviz.trace(model, donor[None]).couplings[-1]
    for dose in (0, 1, 4):
        expected = capsviz.trace(model, image[None], couplings=0.1 + dose * (own - 0.1)).lengths
        found, _, _ = looked(page, "digits", image, routing="another", dose=dose,
                             donor=donor.flatten().tolist())  # fmt: skip
        assert np.abs(found - expected[0].numpy()).max() < 1e-5


def test_images_are_warped_as_kornia_does(page):
    from capsviz.transforms import warps

    image = capsviz.data.load("digits", "test").first(1).images / 255
    terms = {"angle_deg": 30.0, "shift_x_px": 2.0, "shift_y_px": -3.0}
    expected = warps.warp(image, warps.matrix((28, 28), **terms))
    found = page.evaluate(
        "(image) => Array.from(warp(Float32Array.from(image), [1, 28, 28], 30, 2, -3))",
        image.flatten().tolist(),
    )
    torch.testing.assert_close(torch.tensor(found), expected.flatten(), atol=1e-4, rtol=0)


def test_every_control_changes_what_it_should(page):
    def bars():
        page.wait_for_function(READY)
        return page.inner_text("#scores")

    before = bars()
    page.locator("#angle").fill("60")
    assert bars() != before
    page.click("#undo")
    assert bars() == before
    page.check("input[value=uniform]")
    assert "Ticks: routing as trained" in bars()
    page.check("input[value=another]")
    page.select_option("#donor", index=7)
    page.locator("#dose").fill("8")
    assert page.is_visible("#another") and bars() != before
    page.check("input[value=trained]")
    page.select_option("#first", "digits")
    page.locator("#iteration").fill("1")
    assert "iteration 1 of 3" in bars()
    page.locator("#pose-3").fill("0.25")
    bars()
    drawn = page.evaluate(
        "[...document.querySelectorAll('#posed canvas')].map((one) => one.toDataURL())"
    )
    assert drawn[0] != drawn[1]
    page.locator("#sheet").scroll_into_view_if_needed()
    box = page.locator("#sheet").bounding_box()
    page.mouse.move(box["x"] + 140, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 140, box["y"] + 240, steps=8)
    page.mouse.up()
    assert "predicted as 1" in bars()
    drawn = page.input_value("#image")
    page.click("#clear")
    bars()
    assert drawn == "drawing" and page.input_value("#image") == page.evaluate("DATA.image")
    assert page.inner_text("#status") == ""


def test_tours_say_what_happens(page):
    for k in range(page.locator("#tours button").count()):
        page.click(f"#tours button:nth-child({k + 1})")
        for step in range(page.evaluate(f"TOURS[{k}].steps.length")):
            if step:
                page.click("#tour-next")
            page.wait_for_function(READY)
            said = page.evaluate(f"TOURS[{k}].steps[{step}].predicted ?? null")
            assert said in (None, page.evaluate("document.body.dataset.predicted"))
            assert page.inner_text("#status") == ""
    assert page.evaluate("document.body.dataset.predicted") != "3"  # it was attacked
    page.click("#tour-back")  # as on the way there
    page.wait_for_function(READY)
    assert page.evaluate("[state.image, state.right]") == [page.evaluate("DATA.image"), 8]
    page.click("#tour-end")
    page.wait_for_function(READY)
    assert page.evaluate("[state.routing, state.right]") == ["trained", 0]


def test_it_fits_a_telephone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 900})


def test_it_is_there_without_a_connection_after_the_first_load(page):
    folder = Path(url2pathname(urlparse(page.url).path)).parent
    handler = partial(SimpleHTTPRequestHandler, directory=folder.parent)
    context = page.context.browser.new_context()
    other = context.new_page()
    other.set_default_timeout(120_000)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        other.goto(f"http://127.0.0.1:{server.server_port}/playground/")
        other.wait_for_function(READY)
        other.evaluate("navigator.serviceWorker.ready")
        other.wait_for_function("caches.keys().then((names) => names.length == 1)")
        server.shutdown()
    other.reload()
    other.wait_for_function(READY)
    assert other.inner_text("#status") == "" and "predicted as" in other.inner_text("#scores")
    context.close()


def test_a_browser_without_webassembly_is_told_so(page):
    context = page.context.browser.new_context()
    context.add_init_script("delete window.WebAssembly")
    other = context.new_page()
    other.set_default_timeout(120_000)
    other.goto(page.url)
    other.wait_for_function(READY)
    assert "no WebAssembly" in other.inner_text("#status")
    context.close()
