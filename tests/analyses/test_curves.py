"""Curves: the record of a run, the best epoch, the drawing, and the command."""

import csv
import io

import numpy as np
import pytest
from helpers.command_line import fine, refused, run

from capsviz import checkpoint, results
from capsviz.analyses import curves as files
from capsviz.analyses.curves import Curves, joined
from capsviz.training import history


def make(folder, accuracy=(0.5, 0.9, 0.8), sse=True, **more):
    """Write a run's folder with a record of random numbers from a fixed seed."""
    draw, n = np.random.default_rng(0), len(accuracy)
    columns = {
        "epoch": list(range(1, n + 1)),
        "train_loss": draw.uniform(0.1, 1, n),
        "train_accuracy": draw.uniform(0.3, 0.9, n),
        "validation_accuracy": accuracy,
        "validation_margin_loss": draw.uniform(0.01, 0.3, n),
        "validation_sse": draw.uniform(20, 90, n) if sse else [""] * n,
        "learning_rate": [0.001 * 0.9**k for k in range(n)],
        "seconds": [1.5] * n,
        "something_new": ["abc"] * n,
    } | more
    columns = {name: values for name, values in columns.items() if values is not None}
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([list(columns), *zip(*columns.values(), strict=True)])
    folder.mkdir(parents=True)
    (folder / "epochs.csv").write_text(text.getvalue())
    return folder


def test_the_record_of_training_is_read_completely(tmp_path):
    epochs = [
        history.Epoch(k, 1 / k, 0.1 * k, 0.2 * k, 0.3 / k, None, 1e-3, 2.0, "c0ffee")
        for k in (1, 2, 3)
    ]
    history.write_csv(tmp_path, epochs)
    ((name, columns),) = files.read([tmp_path]).items()
    assert name == tmp_path.name and set(columns) == {"epoch", *files.QUANTITIES}
    for column, values in columns.items():
        assert values == [getattr(epoch, column) for epoch in epochs]


def test_the_best_epoch_is_the_one_whose_weights_training_stores(tmp_path):
    draw = np.random.default_rng(1)
    for k in range(20):
        accuracy, loss = draw.integers(7, 9, 6) / 10, draw.integers(1, 4, 6) / 10
        run = make(tmp_path / str(k), tuple(accuracy), validation_margin_loss=loss)
        record = [
            history.Epoch(n + 1, 0, 0, a, b, None, 0, 0)
            for n, (a, b) in enumerate(zip(accuracy, loss, strict=True))
        ]
        assert joined(files.read([run])).best == [history.best_epoch(record)]


def test_runs_are_named_by_their_paths_below_the_common_folder(tmp_path):
    runs = [make(tmp_path / place) for place in ("x/a", "y/a", "y/b")]
    other = make(tmp_path / "elsewhere")
    (other / "epochs.csv").rename(tmp_path / "copy.csv")
    assert list(files.read([*runs, tmp_path / "copy.csv"])) == ["x/a", "y/a", "y/b", "copy"]
    assert list(files.read([runs[0] / "epochs.csv"])) == ["a"]
    (tmp_path / "x" / "a.csv").write_text((runs[0] / "epochs.csv").read_text())
    with pytest.raises(ValueError, match="two runs are named 'a': rename"):
        files.read([runs[0], tmp_path / "x" / "a.csv"])
    for again in (runs[0], runs[0] / "epochs.csv", runs[0] / ".." / "a"):
        with pytest.raises(ValueError, match="is given twice"):
            files.read([runs[0], again])


def drawn(result, title):
    """Return the lines of a panel that show runs, as (epochs, values) without gaps."""
    figure = results.draw("curves", result)
    (axes,) = (a for a in figure.axes if a.get_title() == title)
    return figure, axes, [line for line in axes.lines if line.get_linestyle() != "None"]


def test_errors_are_100_percent_minus_accuracy_and_the_best_is_marked(tmp_path):
    runs = [make(tmp_path / "a", (0.5, 0.9, 0.8)), make(tmp_path / "b", (0.6, 0.7), sse=False)]
    result = joined(files.read(runs))
    figure, axes, lines = drawn(result, "validation error, %")
    np.testing.assert_allclose(lines[0].get_ydata(), [50, 10, 20])
    np.testing.assert_allclose(lines[1].get_ydata(), [40, 30])
    assert list(lines[1].get_xdata()) == [1, 2] and axes.get_yscale() == "log"
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in marks]
    np.testing.assert_allclose(points, [(2, 10), (2, 30)])
    assert lines[0].get_color() != lines[1].get_color()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["a", "b", "best validation epoch"]


def test_the_command_writes_figure_and_numbers(blank, tmp_path):
    runs = [make(tmp_path / "a"), make(tmp_path / "b", sse=False)]
    out = tmp_path / "out"
    result = fine(run("curves", *runs, "--output", out, "--format", "png"))
    assert {p.name for p in out.iterdir()} == {"curves-a-b.json", "curves-a-b.png"}
    lines = result.stdout.splitlines()
    best = "a: highest validation accuracy 90.00 % in epoch 2 of 3 (validation margin loss "
    assert lines[0].startswith(best) and "; training accuracy " in lines[0]
    assert "validation SSE" in lines[0] and "SSE" not in lines[1]
    found, _ = results.read_result(out / "curves-a-b.json")
    assert found == joined(files.read(runs))


def test_a_figure_set_shows_the_run_beside_the_weights(tmp_path):
    class Inputs:
        name, source = "digits", "digits"

    assert "no record" in Curves().left_out(Inputs)
    for path in (checkpoint.find("digits"), checkpoint.find("digits").with_suffix(".json")):
        target = tmp_path / "run" / path.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    make(tmp_path / "b")
    (tmp_path / "b" / "epochs.csv").rename(tmp_path / "run" / "epochs.csv")
    Inputs.source = str(tmp_path / "run")
    result = Curves().measure(Inputs)
    assert Curves().stem("", result) == "curves-digits" and Curves().left_out(Inputs) == ""
    assert "epoch 2 of 3" in Curves().verdict(result)


def spoil(folder, change):
    file = make(folder) / "epochs.csv"
    file.write_text(change(file.read_text()))
    return folder


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t[:-60], "line 4, column"),
        (lambda t: t.replace("\n2,", "\n1,"), "expected one line per epoch"),
    ],
)
def test_an_invalid_record_is_refused_with_file_and_line(tmp_path, change, text):
    result = run("curves", spoil(tmp_path / "run", change), "--output", tmp_path / "out")
    refused(result, text, "epochs.csv'")
    assert not (tmp_path / "out").exists()
