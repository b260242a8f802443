"""docs/check.md, written from what the checks say of themselves: python -m capsviz.checks.page."""

from __future__ import annotations

from capsviz import discovery
from capsviz.checks import PITFALLS, checks
from capsviz.statistics.words import in_a_row

HEAD = """# Is a capsule network correct?

`capsviz check` looks for the mistakes of published capsule-network code in one network: your own,
or a checkpoint. It records passes of it without editing it, changes what its layers give, and
watches what follows. It needs no labelled data and takes seconds on a CPU.

    capsviz check --network net.py:build --weights net.pt --dataset mnist \\
        --loss net.py:loss --train-data net.py:train --test-data net.py:test --new net.py:build
    capsviz check --checkpoint mnist

Each function takes no arguments, but `loss`: (output, images, labels) -> a number, where labels are
indices (N,); one that raises, or returns no number, is refused at once. `train_data` are images, or
pairs that begin with one, as the loss gets them; from Python they may be given themselves. Every
check has one verdict:

- **passes**, with the number that shows it;
- **fails**: what it breaks and how to mend it are said with it;
- **told**: unlike the paper, which need be no mistake;
- **cannot be seen**, and why. That is no pass.

One cause raises one alarm: where a check fails, those that it would upset are not judged, and say
which one it was. Verdicts of untrained or collapsed weights are weaker, which the report says. The
exit status is 0 where nothing fails, 1 where something does, and 2 for a wrong request. `--json`
prints the report for programs, `--markdown FILE` writes it as a page.

In a test of your own project:

```python
from capsviz.testing import assert_capsnet


def test_my_network_is_a_capsule_network():
    assert_capsnet(MyCapsNet(), image_shape=(1, 28, 28), classes=10)
```

In Python, `capsviz.checks.run(network, image_shape, classes, ...)` also takes `normalise`, `call`,
`scores`, `decode` and `pair` as `capsviz.wrap` does, and `iterations`, the declared number of
passes; at the command line `--pair NAME` and `--iterations R`. What a network that is wrapped was
told, `pair` and `children` too, holds for the checks. A number of classes that is not that of the
network's last capsules is refused.

## The checks

Sections are those of Sabour, Frosst & Hinton, *Dynamic routing between capsules* (2017).
In a network of several routed layers {layers} look at each,
that of the classes first, and name the layer that is at fault; checks of primary capsules look at
the children of the first.

"""
TAIL = """
## What no check sees

- An error that is in fact the loss, and a test set that chose the weights: they are in how numbers
  are reported, not in the network.
- The learning rate's schedule, and the mask of the decoder in training: only a training run shows
  them.
- Counts of parameters, and figures and claims about them.
- Where no softmax weighs votes (couplings written in another way, a fused kernel), what needs the
  couplings cannot be seen, unless the network has a `look` or is wrapped with `couplings=`.

## Add a check

A file in `capsviz/checks/pitfalls/`, or in the folder `pitfalls` of a folder that
`$CAPSVIZ_PLUGINS` names:

```python
\"\"\"Scores of a class are not all equal.\"\"\"

from capsviz.checks.verdict import About, fails, passes

ABOUT = About(
    paper="§3",
    seen="seven images",
    breaks="the network says nothing",
    mend="train it",
)


def examine(candidate):
    spread = float(candidate.scores(candidate.images(7)).std(0).max())
    said = f"scores spread by {spread:.2g}"
    return passes(said, spread=spread) if spread > 0 else fails(said, spread=spread)
```
"""


def table() -> list[str]:
    """A row for each check."""
    rows = ["| check | how it is seen | what it needs | paper | what it breaks |"]
    rows.append("|---|---|---|---|---|")
    for name, module in sorted(checks().items()):
        about, title = module.ABOUT, discovery.summary(PITFALLS, name)
        cells = (f"`{name}`: {title}", about.seen, about.needs, about.paper, about.breaks)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return rows


def text() -> str:
    """The whole page."""
    each = [f"`{name}`" for name, module in sorted(checks().items()) if module.ABOUT.layers]
    return HEAD.format(layers=in_a_row(each)) + "\n".join(table()) + "\n" + TAIL


if __name__ == "__main__":
    print(text(), end="")
