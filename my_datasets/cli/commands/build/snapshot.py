"""`my-datasets snapshot`: freezes a range of a Kafka topic as a prepared version."""

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core.progress import ignore
from my_datasets.errors import InvalidOptionError

_T = TypeVar("_T")
_BUILD_OPTIONS = ("workers", "max_memory", "on_error", "max_quarantined", "version_gate", "resume")


def _place(
    _context: click.Context, _option: click.Parameter, text: str
) -> "str | dict[int, int] | datetime":
    """Returns a position in a topic: a word, offsets by partition, or a time."""
    if text in ("earliest", "latest"):
        return text
    with contextlib.suppress(ValueError):
        pairs = [one.split("=") for one in text.split(",")]
        return {int(partition): int(offset) for partition, offset in pairs}
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, 0=OFFSET,1=OFFSET or a time such as "
            "2026-01-31T12:00:00+00:00."
        ) from None
    if when.tzinfo is None:
        raise click.BadParameter(f"{text!r} has no time zone: add +00:00.")
    return when


@click.command("snapshot")
@click.argument("url", metavar="kafka://BROKER/TOPIC")
@click.option(
    "--as", "reference", metavar="NAME:VERSION", required=True, help="The version to create."
)
@click.option(
    "--features",
    required=True,
    metavar="WHAT",
    help="The features of an example: a prepared dataset, a directory with a features.json, or "
    "MODULE:NAME in Python.",
)
@click.option(
    "--payload",
    type=click.Choice(["example", "json", "avro"]),
    default="example",
    show_default=True,
    help="The encoding of messages.",
)
@click.option(
    "--schema", metavar="FILE", type=options.LocalPath(), help="The Avro schema, a JSON file."
)
@click.option(
    "--from-offsets",
    "begin",
    default="earliest",
    show_default=True,
    callback=_place,
    metavar="PLACE",
    help="Where to start: earliest, latest, PARTITION=OFFSET,... or a time with a time zone.",
)
@click.option(
    "--until",
    "end",
    default="latest",
    show_default=True,
    callback=_place,
    metavar="PLACE",
    help="Where to stop, in the same form; exclusive.",
)
@click.option(
    "--split", default="train", show_default=True, metavar="NAME", help="The name of the split."
)
@click.option(
    "--in-order", is_flag=True, help="Keep messages in order of offset instead of shuffling."
)
@click.option("--allow-gaps", is_flag=True, help="Allow missing offsets, as in a compacted topic.")
@click.option(
    "--config",
    metavar="FILE",
    type=options.LocalPath(),
    help="librdkafka options, one NAME=VALUE per line: security.protocol, sasl.password, ...",
)
@options.data_dir_option
@options.workers_option
@options.max_memory_option
@options.resume_option
@click.option(
    "--on-error",
    type=click.Choice(["fail", "quarantine"]),
    default="fail",
    show_default=True,
    help="Messages that cannot be decoded: fail, or write them to quarantine.jsonl.",
)
@options.max_quarantined_option
@options.version_gate_option()
@options.quiet_option
@options.json_option
def command(url: str, features: str, schema: str | None, config: str | None, **given: Any) -> None:
    """Freeze a range of a topic's offsets as an immutable prepared version.

    The same offsets always give the same bytes, whatever was added to the topic since. They are
    printed, and recorded in the manifest. Fails if retention or compaction has removed messages
    of the range.

    Example: my-datasets snapshot kafka://localhost:9092/clicks --as clicks:1.0.0 --features
    clicks_schema --payload json --until 2026-01-31T12:00:00+00:00
    """
    output.quiet_tensorflow()
    from my_datasets.building.options import BuildOptions
    from my_datasets.kafka.snapshot import snapshot

    as_json, quiet = given.pop("as_json"), given.pop("quiet")
    how: dict[str, Any] = {name: given.pop(name) for name in _BUILD_OPTIONS}
    if quiet or as_json:
        how["report"] = ignore
    begin = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):
        done = snapshot(
            url,
            features=_features(features),
            schema=None if schema is None else _read(schema, json.loads),
            options=None if config is None else _read(config, _lines),
            build_options=BuildOptions(**how),
            **given,
        )
    result = {
        "dataset": done.dataset,
        "path": str(done.path),
        "built": done.built,
        "seconds": round(time.monotonic() - begin, 3),
        "examples": done.examples,
        "offsets": {str(p): list(ends) for p, ends in sorted(done.frozen.ends.items())},
        "reproduce": done.reproduce,
    }
    if as_json:
        output.print_json(result)
        return
    out = output.console()
    state = f"frozen in {result['seconds']:.1f} s" if done.built else "already prepared"
    out.print(
        output.bold(done.dataset), f": {state}, {done.examples:,} examples", sep="", soft_wrap=True
    )
    for partition, (first, last) in sorted(done.frozen.ends.items()):
        out.print(f"  partition {partition}: offsets {first} to before {last}")
    out.print(f"  in {done.path}\n  again: {done.reproduce}", soft_wrap=True)


def _features(text: str) -> Any:
    """Returns the features that `MODULE:NAME` names; other texts as they are."""
    module, colon, name = text.partition(":")
    if not colon or not name.isidentifier():
        return text
    sys.path.insert(0, "")  # as `python -m` does
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidOptionError(
            f"There are no features {text!r}: {error}.",
            fix="name a module on PYTHONPATH and a FeaturesDict in it",
        ) from error


def _read(file: str, parse: Callable[[str], _T]) -> _T:
    """Parses a file.

    Raises:
      InvalidOptionError: The file cannot be read.
    """
    try:
        return parse(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        # Not the content, which may be a password.
        said = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise InvalidOptionError(
            f"{file} cannot be read: {said}.", fix="name another file, or fix it"
        ) from None


def _lines(text: str) -> dict[str, str]:
    """Parses lines NAME=VALUE; those that begin with # are comments."""
    found = {}
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            name, is_set, value = line.partition("=")
            if not is_set:
                raise ValueError("a line is not NAME=VALUE")
            found[name.strip()] = value.strip()
    return found
