"""Check a capsule network for the mistakes of published code."""

from functools import partial

import click

from capsviz.cli import naming, options, writing

EXAMPLES = """
capsviz check --network net.py:build --loss net.py:loss  # 10 s
capsviz check --checkpoint mnist  # 30 s
"""

STATUS = """
Each check prints PASS, FAIL, WARN (unlike the paper, which may be intended) or SKIPPED (with the
reason). Exit status: 0 if nothing fails, 1 if a check fails, 2 for a usage error or a network
without capsules. docs/check.md lists the checks.
"""
FUNCTIONS = {
    "--loss": "(output, images, labels) -> the training loss; labels are class indices (N,).",
    "--train-data": "() -> training images, or (images, ...), as the loss gets them.",
    "--test-data": "() -> test images; read twice, to see whether they change.",
    "--new": "() -> the untrained network.",
}
IMAGES = 64  # test images, the same each time


@click.command(help=f"{__doc__}\n{STATUS}")
@options.inputs
@click.option(
    "--image-shape", type=int, nargs=3, metavar="C H W",
    help="Image shape of an unwrapped --network; a --dataset such as folder is resized to it."
)  # fmt: skip
@click.option(
    "--classes", type=int, metavar="J", help="Number of classes, for --network without --dataset."
)
@click.option(
    "--capsules", type=int, metavar="J", help="Number of last capsules, if they are not classes."
)
@options.stack(
    *(click.option(name, metavar="FILE.py:FUNCTION", help=what) for name, what in FUNCTIONS.items())
)
@click.option("--iterations", type=int, metavar="R", help="Declared number of routing iterations.")
@click.option(
    "--pair",
    metavar="NAME",
    help="Which softmax makes the couplings: its module, or part of its file and line.",
)
@writing.as_json
@options.path_option("--markdown", folder=False, help="Write the report as Markdown.")
@writing.force
def command(
    inputs, image_shape, classes, capsules, loss, train_data, test_data, iterations, pair, new,
    as_json, markdown, force,
):  # fmt: skip
    """Check one network."""
    import torch

    from capsviz import checks
    from capsviz.files import write_text
    from capsviz.inputs.opening import open_module
    from capsviz.transforms.augment import to_float
    from capsviz.wrapping import open_function
    from capsviz.wrapping import open_module as opened
    from capsviz.wrapping.environment import on_stderr

    if markdown is not None:
        naming.refuse_file(markdown, force=force)
    torch.manual_seed(0)  # untrained networks are the same each time
    shape = _shape(inputs, image_shape, classes, capsules)
    chosen = options.with_options(inputs)
    module, part, name, notice = open_module(**chosen, image_shape=image_shape)
    if notice:
        click.echo(notice, err=True)
    facts = {"iterations": iterations, "pair": pair}
    if loss is not None:
        facts["loss"] = open_function(loss, arguments=3)
    data = {"train_data": train_data, "test_data": test_data}
    facts |= {key: partial(open_function(spec)) for key, spec in data.items() if spec is not None}
    if new is not None:
        facts["new"] = opened(new)[0]
    if part is not None:
        shape = {"image_shape": image_shape or part.image_shape, "capsules": capsules}
        shape["classes"] = len(part.classes) if capsules is None else None
    if part is not None and len(part):  # else noise
        facts["images"] = to_float(part.sample(min(IMAGES, len(part))).images)
    try:
        with on_stderr():  # what the user's code prints
            report = checks.run(module, **shape, **facts)._replace(network=name)
    except ValueError as error:
        if part is None or image_shape is not None or "refuses images" not in str(error):
            raise
        more = "--dataset, or --image-shape C H W and --classes J"
        more = more if inputs["dataset"] is None else "--image-shape C H W"
        raise ValueError(f"{error}; for other images name {more}") from error
    click.echo(writing.to_json(report.as_dict()) if as_json else report.text())
    if markdown is not None:
        markdown.parent.mkdir(parents=True, exist_ok=True)
        write_text(markdown, report.markdown())
    click.get_current_context().exit(report.exit_status)


def _shape(inputs: dict, image_shape, classes: int | None, capsules: int | None) -> dict:
    """Return shape and number in place of data, or {}; ValueError for one without the other."""
    if image_shape is None and classes is None:
        return {}
    if inputs["network"] is None:
        raise ValueError("--image-shape and --classes are for --network")
    if min(*(image_shape or ()), classes or 1, capsules or 1) < 1:
        raise ValueError(
            f"expected numbers of at least 1, got {image_shape}, {classes or capsules}"
        )
    if inputs["dataset"] is not None:
        if classes is not None:
            raise ValueError(f"--dataset {inputs['dataset']} has its classes: drop --classes")
    elif image_shape is None or (classes is None) == (capsules is None):
        raise ValueError("--image-shape and --classes (or --capsules) belong together: give both")
    return {"image_shape": image_shape, "classes": classes, "capsules": capsules}
