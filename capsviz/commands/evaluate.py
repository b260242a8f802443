"""Print accuracy with its interval, per-class accuracy, confusion and losses on a split."""

import click

from capsviz.cli import options, writing

EXAMPLES = """
capsviz evaluate --checkpoint mnist --n 1000  # 5 s; all 10,000 images 15 s
"""

MANY = 20  # classes; if there are more, only the worst are printed
WIDE = 10  # longest class name that can head a column


@click.command(help=__doc__)
@options.replicates
@click.option(
    "--split", default="test", show_default=True, metavar="NAME",
    help="train, validation, test, or another split of the data set, as test-outside.",
)  # fmt: skip
@options.number(
    "Images, drawn by a fixed seed as in the other commands. [default: all]", name="limit"
)
@writing.as_json
def command(split, limit, as_json, inputs):
    """Evaluate one network, or several training runs of a recipe."""
    from capsviz import data
    from capsviz.inputs import opening, runs
    from capsviz.training.evaluate import evaluate

    inputs, seeds = runs.first_of(inputs)
    chosen = options.open_inputs(inputs, split=split, capsules=False, whole=True)
    part = chosen.dataset.sample(limit)
    click.echo(data.summary(part), err=True)
    if len(seeds) > 1:
        opened = runs.open_runs(chosen, [run for (run,) in seeds])
        about = _of_runs(opened, part, split)
        click.echo(writing.to_json(about) if as_json else _runs_table(about))
        return
    evaluation = evaluate(chosen.model, part, progress=writing.progress("images"))
    (name,) = opening.apart_from_shipped([chosen.name], [chosen.source])
    about = {
        "checkpoint": name, "dataset": part.name, "split": split, **evaluation._asdict(),
        "balanced_accuracy": evaluation.balanced_accuracy,
        "largest_share": evaluation.largest_share,
    }  # fmt: skip
    for doubt in evaluation.doubts(chosen.model.card):
        writing.line(doubt)
    objects = 1 if part.parts is None else part.labels.shape[1]
    click.echo(writing.to_json(about) if as_json else _table(about, part.classes, objects))


def _of_runs(opened, part, split: str) -> dict:
    """Return accuracy over several training runs, and the results of each."""
    from capsviz.inputs.runs import seeds_of
    from capsviz.statistics.estimate import Estimate
    from capsviz.statistics.runs import combine
    from capsviz.training.evaluate import evaluate

    bar = writing.progress("images")
    each = [evaluate(one.model, part, progress=bar)._asdict() for one in opened]
    shares = [Estimate(one["accuracy"], one["accuracy_ci95"], one["n"]) for one in each]
    accuracy = combine(shares, 0, 1)
    return {
        "recipe": opened[0].name, "dataset": part.name, "split": split, "n": each[0]["n"],
        "seeds": seeds_of(one.model.card for one in opened), "accuracy": accuracy, "runs": each,
    }  # fmt: skip


def _runs_table(about: dict) -> str:
    runs, (low, high) = about["runs"], about["accuracy"].ci95
    seeds = ", ".join(map(str, about["seeds"]))
    each = ", ".join(f"{one['accuracy']:.2%}" for one in runs)
    of = f"{about['n']:,} images of {about['dataset']} {about['split']}"
    interval = f"95 % interval over runs and images {low:.2%} to {high:.2%}"
    return (
        f"{len(runs)} training runs of {about['recipe']} (seeds {seeds}) on {of}\n"
        f"  accuracy     {about['accuracy'].value:.2%}  ({interval})\n"
        f"  of each run  {each}\n"
        f"  margin loss  {sum(one['margin_loss'] for one in runs) / len(runs):.5f} per image"
    )


def _table(about: dict, classes, objects: int) -> str:
    low, high = about["accuracy_ci95"]
    each = f", all {objects} classes correct" if objects > 1 else ""
    lines = [
        f"{about['checkpoint']} on {about['n']:,} images of {about['dataset']} {about['split']}",
        f"  accuracy     {about['accuracy']:.2%}  (95 % interval {low:.2%} to {high:.2%}){each}",
        f"  balanced     {balance(about['balanced_accuracy'], about['largest_share'])}",
        f"  error        {about['error_percent']:.2f} %",
        f"  margin loss  {about['margin_loss']:.5f} per image",
    ]
    if about["reconstruction_sse"] is not None:
        what = f"thing, {objects} in each image" if objects > 1 else "image"
        lines.append(f"  SSE          {about['reconstruction_sse']:.2f} per {what}")
    by_class = _recalls if objects > 1 or len(classes) > MANY else _confusion
    return "\n".join([*lines, "", *by_class(about, classes)])


def balance(accuracy: float, share: float | None) -> str:
    """Return balanced accuracy and the share of the largest class, as text."""
    largest = "" if share is None else f"; the largest class is {share:.2%} of the images"
    return f"{accuracy:.2%}, the mean over classes{largest}"


def _confusion(about: dict, classes) -> list[str]:
    heads, rows, numbered = list(classes), list(classes), ""
    if max(map(len, classes)) > WIDE:
        heads = [str(k) for k in range(len(classes))]
        rows = [f"{name} ({k})" for k, name in enumerate(classes)]
        numbered = ", by the number in brackets"
    width = max(5, *map(len, heads), *(len(str(max(r))) for r in about["confusion"]))
    first = max(width, *map(len, rows))
    lines = [f"rows: true class; columns: predicted class{numbered}; last column: accuracy"]
    lines.append(" " * first + "".join(f" {head:>{width}}" for head in heads))
    for name, row_name, row in zip(classes, rows, about["confusion"], strict=True):
        share = about["per_class"].get(name)
        cells = "".join(f" {count or '.':>{width}}" for count in row)
        lines.append(f"{row_name:>{first}}{cells}  " + ("" if share is None else f"{share:7.2%}"))
    return lines


def _recalls(about: dict, classes) -> list[str]:
    """Return lines about the recall of classes, and which other classes are predicted for them.

    If there are many classes, only those with the lowest recall are listed.
    """
    rows, width = list(about["per_class"].items()), max(5, *map(len, classes))
    lines = ["recall of each class: share of its images in which it is predicted"]
    if len(rows) > MANY:
        lines.append(f"the {MANY} of {len(classes)} classes with the lowest recall; all: --json")
        rows = sorted(rows, key=lambda row: row[1])[:MANY]
    taken = dict(zip(classes, about["confusion"] or (), strict=False))
    for name, value in rows:
        line = f"{name:>{width}}  {value:7.2%}"
        if name in taken:
            counts = sorted((-n, other) for n, other in zip(taken[name], classes, strict=True) if n)
            wrong = ", ".join(f"{other} {-n}" for n, other in counts if other != name)
            line += f" of {sum(taken[name])}  {wrong:.60}"
        lines.append(line)
    return lines
