"""Checks a builder's behavior: imports it, and gets its features, splits and first examples.

Runs as a program, in a separate process, so that a builder cannot crash the check:
`python -m my_datasets.checking.behavior_check SUBJECT REPORT`, where both are JSON files.
"""

import hashlib
import importlib
import itertools
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from my_datasets.checking.target import CheckTarget
from my_datasets.core.issue import Issue, Severity

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

    from my_datasets.builders.encode.encoder import ExampleEncoder
    from my_datasets.building.units import SplitInput
    from my_datasets.errors import MyDatasetsError

# Number of examples to check in each split.
EXAMPLES = 10
_Value = TypeVar("_Value")
# By split, the keys and records by which two runs are compared: (key, SHA-256 of the record).
Trace = dict[str, list[tuple[str, str]]]


class _Found(Exception):  # noqa: N818 - carries an issue to where it is noted
    def __init__(self, issue: Issue) -> None:
        super().__init__(issue)
        self.issue = issue


def examine(subject: CheckTarget) -> tuple[list[Issue], Trace]:
    """Returns the issues in a builder's behavior, and the trace of its first examples."""
    issues: list[Issue] = []
    trace: Trace = {}
    try:
        cls = _builder_class(subject)
        configs = [config.name for config in cls.BUILDER_CONFIGS] or [None]
        with tempfile.TemporaryDirectory() as directory:
            for config in configs:
                builder = _made(subject, cls, config, directory)
                issues += _undocumented(builder.info.features)
                label = f"{config}/" if config else ""
                _run(subject, builder, label, issues, trace)
    except _Found as found:
        issues.append(found.issue)
    return list(dict.fromkeys(issues)), trace


def _builder_class(subject: CheckTarget) -> "type[tfds.core.DatasetBuilder]":
    import tensorflow_datasets as tfds

    sys.path.insert(0, str(subject.root))
    try:
        module = importlib.import_module(subject.module)
    except BaseException as error:
        raise _Found(
            Issue(
                "import",
                _place(subject, error),
                f"The module cannot be imported: {_said(error)}.",
                "correct that line, or install what it imports",
            )
        ) from error
    cls = module.Builder
    if not isinstance(cls, type) or not issubclass(cls, tfds.core.DatasetBuilder):
        raise _Found(
            Issue(
                "base-class",
                subject.source.name,
                "The class Builder is not a dataset builder.",
                "write class Builder(my_datasets.Builder)",
            )
        )
    return cls


def _made(
    subject: CheckTarget, cls: "type[tfds.core.DatasetBuilder]", config: str | None, directory: str
) -> "tfds.core.DatasetBuilder":
    try:
        builder = cls(config=config, data_dir=directory)
        if builder.info.features is None:
            raise ValueError("it has no features")
    except BaseException as error:
        raise _Found(
            Issue(
                "info",
                _place(subject, error),
                f"The builder cannot be created: {_said(error)}.",
                "return from _info tfds.core.DatasetInfo(builder=self, features=...)",
            )
        ) from error
    keys = builder.info.supervised_keys
    missing = [key for key in _flat(keys) if key not in builder.info.features]
    if missing:
        raise _Found(
            Issue(
                "supervised-keys",
                subject.source.name,
                f"supervised_keys names {missing[0]!r}, which is not a feature.",
                "name features in supervised_keys",
                expected=f"some of {', '.join(builder.info.features)}",
            )
        )
    return builder


def _flat(keys: object) -> Iterator[str]:
    if isinstance(keys, str):
        yield keys
    elif isinstance(keys, dict):
        yield from itertools.chain.from_iterable(map(_flat, keys.values()))
    elif isinstance(keys, (list, tuple)):
        yield from itertools.chain.from_iterable(map(_flat, keys))


def _undocumented(features: "tfds.features.FeatureConnector", path: str = "") -> Iterator[Issue]:
    for key, feature in getattr(features, "items", dict)():
        name = f"{path}{key}"
        if hasattr(feature, "items"):
            yield from _undocumented(feature, f"{name}/")
        elif not feature.doc.desc:
            yield Issue(
                "feature-doc", f"feature {name}", "The feature is not documented.",
                f"describe it: doc={'...'!r}", severity=Severity.WARNING,
            )  # fmt: skip


def _run(
    subject: CheckTarget,
    builder: "tfds.core.DatasetBuilder",
    label: str,
    issues: list[Issue],
    trace: Trace,
) -> None:
    from my_datasets.builders import build_job
    from my_datasets.builders.encode.encoder import ExampleEncoder
    from my_datasets.errors import MyDatasetsError

    if build_job.wants_beam(builder._split_generators):
        return
    from my_datasets.checking.dummy_downloads import DummyDownloadManager, NoDummyDataError

    manager = DummyDownloadManager(subject, type(builder).url_infos or {}, issues)
    if hasattr(builder, "embedded_file"):
        builder.embedded_file = manager.embedded_file(builder.embedded_file)
    try:
        inputs = build_job.split_inputs(builder._split_generators(manager), builder)
    except NoDummyDataError:
        return
    except MyDatasetsError as error:
        issues.append(_as_issue("splits", subject.source.name, error))
        return
    except BaseException as error:
        issues.append(
            Issue(
                "splits",
                _place(subject, error),
                f"_split_generators failed: {_said(error)}.",
                "correct it, or the dummy data that replaces its downloads",
            )
        )
        return
    encoder = ExampleEncoder(builder.info.features)
    for item in inputs:
        if item.collection is not None:
            continue
        found = _split(subject, encoder, item, f"split {label}{item.name}", issues)
        trace[f"{label}{item.name}"] = found


def _split(
    subject: CheckTarget,
    encoder: "ExampleEncoder",
    item: "SplitInput",
    node: str,
    issues: list[Issue],
) -> list[tuple[str, str]]:
    """Returns the first examples' keys and hashes; stops at the first one with an issue."""
    from my_datasets.errors import MyDatasetsError

    found: list[tuple[str, str]] = []
    try:
        for position, (key, encoded) in enumerate(_first(encoder, item)):
            where = f"{node}, example {position}"
            text = _key(key, where, subject, {known for known, _ in found})
            try:
                record = encoded()
            except MyDatasetsError:
                raise  # caused by the machine, for example by a program that is not installed
            except Exception as error:
                raise _Found(_unfit(where, text, error)) from error
            found.append((text, hashlib.sha256(record).hexdigest()))
    except _Found as stop:
        issues.append(stop.issue)
        return found
    except BaseException as error:
        if isinstance(error, MyDatasetsError):
            issues.append(_as_issue("generator", node, error))
        else:
            issues.append(
                Issue(
                    "generator",
                    _place(subject, error),
                    f"The generator of {node} failed: {_said(error)}.",
                    "correct it, or its dummy data",
                )
            )
        return found
    if not found:
        issues.append(
            Issue(
                "empty-split",
                node,
                "The split has no examples.",
                "check that the generator looks where the dummy data is",
            )
        )
    return found


def _first(
    encoder: "ExampleEncoder", item: "SplitInput"
) -> Iterator[tuple[object, Callable[[], bytes]]]:
    """Yields the first examples' keys, each with a function that encodes the example."""
    from my_datasets.building.collector import batches, with_keys

    for _, batch in batches(iter(item.units), EXAMPLES, encoder.own):
        if isinstance(batch, tuple):
            keys, rows = with_keys(batch[0], batch[1], encoder.names, item.name)
            for i, key in enumerate(keys.to_pylist()):
                row = rows.slice(i, 1)
                yield key, partial(_record, encoder.columns, row)
        else:
            for key, example in batch:
                yield key, partial(_record, partial(_row, encoder), example)


def _row(encoder: "ExampleEncoder", example: object) -> pa.LargeBinaryArray:
    from my_datasets.building.units import InvalidValue

    if isinstance(example, InvalidValue):
        raise example
    return encoder.row(example)


def _record(encode: Callable[[_Value], pa.LargeBinaryArray], value: _Value) -> bytes:
    found: bytes = encode(value)[0].as_py()
    return found


def _key(key: object, where: str, subject: CheckTarget, known: set[str]) -> str:
    from my_datasets.errors import InvalidKeyError
    from my_datasets.records import shuffle_order

    try:
        text = shuffle_order.key_bytes(key).decode(errors="backslashreplace")
    except InvalidKeyError as error:
        raise _Found(_as_issue("key", where, error)) from error
    if text in known:
        raise _Found(
            Issue(
                "duplicate-key",
                where,
                f"The key {text!r} occurs twice.",
                "yield keys that are unique within the split",
            )
        )
    if str(subject.dummy_data) in text:
        raise _Found(
            Issue(
                "key-is-path",
                where,
                f"The key {text!r} contains a path on this machine.",
                "use the file's name, or its path relative to the source's directory",
            )
        )
    return text


def _unfit(where: str, key: str, error: Exception) -> Issue:
    from my_datasets.building.units import InvalidValue

    if isinstance(error, InvalidValue):
        feature = f", feature {error.feature}" if error.feature else ""
        return Issue(
            "example",
            f"{where}{feature}",
            f"The example with the key {key!r} does not fit the features.",
            "change what the builder yields, or its features",
            expected=error.expected,
            found=error.found,
        )
    return Issue(
        "example", where, f"The example with the key {key!r} cannot be encoded: {_said(error)}.",
        "change what the builder yields, or its features",
    )  # fmt: skip


def _as_issue(code: str, node: str, error: "MyDatasetsError") -> Issue:
    expected = [fact for fact in error.facts if fact.startswith("Expected")]
    others = [fact for fact in error.facts if fact not in expected]
    return Issue(
        code,
        node,
        error.problem,
        error.fix,
        expected="; ".join(fact.removeprefix("Expected").lstrip(": ") for fact in expected),
        found="; ".join(others),
    )


def _said(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(subject: CheckTarget, error: BaseException) -> str:
    """Returns the innermost line of the builder in an error's traceback."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == subject.source
    ]
    if isinstance(error, SyntaxError) and error.filename == str(subject.source):
        return f"{subject.source.name}:{error.lineno}"
    return f"{subject.source.name}:{frames[-1].lineno}" if frames else subject.source.name


def main() -> None:
    """Reads the subject, and writes the report."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    for name in ("source", "root", "checksums", "dummy_data"):
        given[name] = Path(given[name])
    subject = CheckTarget(**given)
    issues, trace = examine(subject)
    report = {"issues": [issue.to_json() for issue in issues], "trace": trace}
    Path(sys.argv[2]).write_text(json.dumps(report), "utf-8")


if __name__ == "__main__":
    main()
