"""`my-datasets bench`: finds the bottleneck of an input pipeline."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rich_click as click

from my_datasets.cli import options, output

if TYPE_CHECKING:
    from my_datasets.input_pipeline.diagnosis import Diagnosis
    from my_datasets.input_pipeline.plan.plan import Plan
    from my_datasets.input_pipeline.transform.augment import Augmentation

_WIDTH = 40


@click.command(
    "bench",
    short_help="Measure an input pipeline and find its bottleneck.",
    epilog="Example: my-datasets bench digits --batch-size 64 --plot digits.png",
)
@click.argument("reference")
@options.data_dir_option_of(options.PathOrAddress(any_scheme=True))
@click.option("--split", default="train", show_default=True, help="The split or subsplit.")
@click.option("--batch-size", type=click.IntRange(1), default=64, show_default=True)
@click.option("--columns", metavar="A,B", help="Read only these features.  [default: all]")
@click.option(
    "--image-size", metavar="HxW", type=str, help="Resize images, for example to 224x224."
)
@click.option("--float", "is_float", is_flag=True, help="Convert images to floats from 0 to 1.")
@click.option("--augment", is_flag=True, help="Apply the usual random augmentations to images.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of threads.  [default: the plan's choice]"
)
@click.option(
    "--prefetch", type=click.IntRange(0), help="Number of chunks to prefetch.  [default: 2]"
)
@click.option(
    "--cache", type=click.Choice(["none", "memory", "auto"]), default="none", show_default=True
)
@click.option(
    "--framework", type=click.Choice(["tensorflow", "numpy"]), default="tensorflow",
    show_default=True, help="The framework that consumes batches.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True,
    help="Duration of each of about six measurements.",
)  # fmt: skip
@click.option(
    "--output", "written", metavar="FILE", type=options.LocalPath(), help="Also write JSON to FILE."
)
@click.option("--plot", metavar="FILE", type=options.LocalPath(), help="Write a bar chart as PNG.")
@options.feature_imports_option
@options.json_option
def command(
    reference: str,
    data_dir: str | None,
    columns: str | None,
    image_size: str | None,
    is_float: bool,
    augment: bool,
    framework: Literal["tensorflow", "numpy"],
    seconds: float,
    written: str | None,
    plot: str | None,
    as_json: bool,
    **plan_options: Any,
) -> None:
    """Measure the stages of an input pipeline, find the bottleneck, and try other options.

    REFERENCE is a prepared dataset such as digits:1.*.*, or the directory of a version. Measures
    each stage alone in one thread, then the whole pipeline as training would use it, then variants
    with other options, and reports those that are faster.
    """
    output.quiet_tensorflow()
    from my_datasets.input_pipeline.diagnosis import diagnose
    from my_datasets.input_pipeline.plan.planner import plan

    pipeline = plan(
        reference,
        data_dir=data_dir,
        columns=None if columns is None else [one.strip() for one in columns.split(",")],
        image_size=None if image_size is None else _size(image_size),
        image_dtype="float32" if is_float else None,
        epochs=None,
        **plan_options,
    )
    with output.console(stderr=True).status("Measuring") as status:
        found = diagnose(
            pipeline, augment=_augmentation(pipeline) if augment else None, framework=framework,
            seconds=seconds, tell=lambda what: status.update(f"Measuring {what}"),
        )  # fmt: skip
    if written is not None:
        Path(written).write_text(json.dumps(found.to_dict(), indent=2) + "\n", "utf-8")
    if plot is not None:
        from my_datasets.cli.charts import write_ceilings

        write_ceilings(found, Path(plot))
    if as_json:
        output.print_json(found.to_dict())
    else:
        _show(found)


def _augmentation(pipeline: "Plan") -> "Augmentation":
    """Returns the usual augmentations; those of color only for color images."""
    from my_datasets.input_pipeline.decode import pytree
    from my_datasets.input_pipeline.read.opening import opened
    from my_datasets.input_pipeline.transform.augment import standard_image

    leaves = pytree.columns_of(opened(pipeline)[0].tree)
    is_coloured = all(leaf.shape[-1:] == (3,) for leaf in leaves if leaf.form == "image")
    return standard_image(saturation=0.1 if is_coloured else 0.0)


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and (width or height).isdecimal()):
        raise click.BadParameter(
            f"{text!r} is not a size such as 224x224", param_hint="--image-size"
        )
    return int(height), int(width or height)


def _show(found: "Diagnosis") -> None:
    from rich.table import Table

    from my_datasets.input_pipeline.diagnosis import STAGES

    console = output.console()
    console.print(found.plan)
    console.print()
    table = Table(box=None, pad_edge=False)
    table.add_column("Stage")
    table.add_column("Share", justify="right")
    table.add_column("")
    table.add_column("Examples/s alone", justify="right")
    for one in found.ceilings:
        bar = "█" * max(1, round(_WIDTH * one.share))
        style = "bold red" if one.stage == found.bottleneck else "cyan"
        table.add_row(one.stage, f"{one.share:.0%}", output.bold(bar, style), f"{one.rate:,.0f}")
    console.print(table)
    console.print()
    console.print(f"All together: {found.rate:,.0f} examples/s with {found.framework}")
    for change in found.changes:
        console.print(
            f"With {change.option}={change.value}: {change.after:,.0f}, "
            f"{change.gain:.2f} times {change.before:,.0f}"
        )
    what = f" ({STAGES[found.bottleneck][0]})" if found.bottleneck in STAGES else ""
    console.print("Bottleneck: ", output.bold(found.bottleneck), what, sep="")
    console.print(found.advice[0].upper() + found.advice[1:] + ".")
