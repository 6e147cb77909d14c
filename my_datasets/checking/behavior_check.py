"""Checks a builder's behavior: imports it, and gets its features, splits and first examples.

Runs as a program, in a separate process, so that a builder cannot crash the check:
`python -m my_datasets.checking.behavior_check TARGET REPORT`, where both are JSON files.
"""

import hashlib
import importlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.download import checksums, extractor, resource

from my_datasets.builders import build_job
from my_datasets.builders.download_manager import Nested, Urls, map_addresses
from my_datasets.builders.encode.encoder import ExampleEncoder
from my_datasets.building.collector import batches, with_keys
from my_datasets.building.units import InvalidValue, SplitInput
from my_datasets.checking.builder_files import CheckTarget
from my_datasets.core.issue import Issue, Severity
from my_datasets.errors import InvalidKeyError, MyDatasetsError
from my_datasets.records import shuffle_order

# Number of examples to check in each split.
EXAMPLES = 10
# By split, the keys and records by which two runs are compared: (key, SHA-256 of the record).
Trace = dict[str, list[tuple[str, str]]]


class NoDummyDataError(Exception):
    """There is no dummy data, so the check cannot continue; the issue is already recorded."""


class DummyDownloadManager:  # builders that use unsupported methods get errors with this class name
    """Returns dummy data instead of downloads, and reports downloads without recorded checksums."""

    def __init__(
        self, target: CheckTarget, records: Mapping[str, checksums.UrlInfo], issues: list[Issue]
    ) -> None:
        """Adds issues to the list, for what the builder requests but `records` lacks."""
        self._subject = target
        self._records = records
        self._issues = issues
        self._dummy = epath.Path(target.dummy_data)

    @property
    def manual_dir(self) -> epath.Path:
        """The dummy data directory."""
        return self._existing(self._dummy)

    def download(self, urls: Urls) -> "Nested[epath.Path]":
        """Returns a dummy file for each URL."""
        return map_addresses(self._file, urls)

    def download_and_extract(self, urls: Urls) -> "Nested[epath.Path]":
        """Returns the dummy data directory for each URL."""

        def extracted(item: resource.Resource) -> epath.Path:
            self._recorded(item.url)
            return self._existing(self._dummy)

        return map_addresses(extracted, urls)

    def extract(self, _paths: object) -> epath.Path:
        """Returns the dummy data directory."""
        return self._existing(self._dummy)

    def download_kaggle_data(self, _name: str) -> epath.Path:
        """Returns the dummy data directory."""
        return self._existing(self._dummy)

    def iter_archive(self, path: epath.PathLike) -> Iterator[tuple[str, BinaryIO]]:
        """Returns the same as TFDS's own method."""
        method = resource.guess_extract_method(str(path))
        files: Iterator[tuple[str, BinaryIO]] = extractor.iter_archive(path, method)
        return files

    def embedded_file(self, real: Callable[[str], epath.Path]) -> Callable[[str], epath.Path]:
        """Returns a function that returns dummy files instead of embedded ones."""

        def found(name: str) -> epath.Path:
            path = self._dummy / name
            return path if path.exists() else real(name)

        return found

    def _recorded(self, url: str) -> checksums.UrlInfo | None:
        info = self._records.get(url)
        if info is None:
            self._issues.append(
                Issue(
                    "checksum-missing",
                    self._subject.checksums.name,
                    f"The checksum of {url} is not recorded.",
                    f"my-datasets checksums {self._subject.name} --update",
                )
            )
        return info

    def _file(self, item: resource.Resource) -> epath.Path:
        info = self._recorded(item.url)
        names = [info.filename] if info is not None and info.filename else []
        names.append(item.url.partition("?")[0].rstrip("/").rpartition("/")[2])
        for name in names:
            if (self._dummy / name).exists():
                return self._dummy / name
        return self._existing(self._dummy / names[0])

    def _existing(self, path: epath.Path) -> epath.Path:
        if not path.exists():
            self._issues.append(
                Issue(
                    "dummy-data",
                    str(path),
                    "There is no dummy data for the builder's downloads.",
                    "put a few examples there, in the source's own layout; without them, "
                    "examples are not checked",
                    severity=Severity.WARNING,
                )
            )
            raise NoDummyDataError
        return path


class _IssueError(Exception):
    """Ends a part of the check; the arguments are those of `Issue`."""

    def __init__(
        self, code: str, node: str, problem: str, fix: str, expected: str = "", found: str = ""
    ) -> None:
        super().__init__(problem)
        self.issue = Issue(code, node, problem, fix, expected, found)


def examine(target: CheckTarget) -> tuple[list[Issue], Trace]:
    """Returns the issues in a builder's behavior, and the trace of its first examples."""
    issues: list[Issue] = []
    trace: Trace = {}
    try:
        cls = _builder_class(target)
        configs = [config.name for config in cls.BUILDER_CONFIGS] or [None]
        with tempfile.TemporaryDirectory() as directory:
            for config in configs:
                builder = _made(target, cls, config, directory)
                issues += _undocumented(builder.info.features)
                inputs = _inputs(target, builder, issues)
                if not inputs:
                    continue  # whatever its features, nothing is encoded here
                encoder = ExampleEncoder(builder.info.features)
                label = f"{config}/" if config else ""
                for item in inputs:
                    examples = trace[f"{label}{item.name}"] = []
                    try:
                        _check_split(target, encoder, item, f"split {label}{item.name}", examples)
                    except _IssueError as error:
                        issues.append(error.issue)
    except _IssueError as error:
        issues.append(error.issue)
    return list(dict.fromkeys(issues)), trace


def _builder_class(target: CheckTarget) -> type[tfds.core.DatasetBuilder]:
    sys.path.insert(0, str(target.root))
    try:
        module = importlib.import_module(target.module)
    except BaseException as error:
        raise _IssueError(
            "import",
            _line_of(error, target),
            f"The module cannot be imported: {_shown(error)}.",
            "correct that line, or install what it imports",
        ) from error
    cls = module.Builder
    if not isinstance(cls, type) or not issubclass(cls, tfds.core.DatasetBuilder):
        raise _IssueError(
            "base-class",
            target.source.name,
            "The class Builder is not a dataset builder.",
            "write class Builder(my_datasets.Builder)",
        )
    return cls


def _made(
    target: CheckTarget, cls: type[tfds.core.DatasetBuilder], config: str | None, directory: str
) -> tfds.core.DatasetBuilder:
    try:
        builder = cls(config=config, data_dir=directory)
        if builder.info.features is None:
            raise ValueError("it has no features")
    except BaseException as error:
        raise _IssueError(
            "info",
            _line_of(error, target),
            f"The builder cannot be created: {_shown(error)}.",
            "return from _info tfds.core.DatasetInfo(builder=self, features=...)",
        ) from error
    for key in _flat(builder.info.supervised_keys):
        if key not in builder.info.features:
            raise _IssueError(
                "supervised-keys",
                target.source.name,
                f"supervised_keys names {key!r}, which is not a feature.",
                "name features in supervised_keys",
                expected=f"some of {', '.join(builder.info.features)}",
            )
    return builder


def _flat(keys: Any) -> Iterator[str]:
    if isinstance(keys, str):
        yield keys
    elif keys is not None:
        for key in keys.values() if isinstance(keys, dict) else keys:
            yield from _flat(key)


def _undocumented(features: tfds.features.FeatureConnector, path: str = "") -> Iterator[Issue]:
    for key, feature in getattr(features, "items", dict)():
        name = f"{path}{key}"
        if hasattr(feature, "items"):
            yield from _undocumented(feature, f"{name}/")
        elif not feature.doc.desc:
            yield Issue(
                "feature-doc", f"feature {name}", "The feature is not documented.",
                f"describe it: doc={'...'!r}", severity=Severity.WARNING,
            )  # fmt: skip


def _inputs(
    target: CheckTarget, builder: tfds.core.DatasetBuilder, issues: list[Issue]
) -> list[SplitInput]:
    """Returns the splits whose examples can be generated without Beam, from the dummy data."""
    if build_job.wants_beam(builder._split_generators):
        return []
    manager = DummyDownloadManager(target, type(builder).url_infos or {}, issues)
    if hasattr(builder, "embedded_file"):
        builder.embedded_file = manager.embedded_file(builder.embedded_file)
    try:
        inputs = build_job.split_inputs(builder._split_generators(manager), builder)
    except NoDummyDataError:
        return []
    except MyDatasetsError as error:
        issues.append(_converted("splits", target.source.name, error).issue)
        return []
    except BaseException as error:
        issues.append(
            Issue(
                "splits",
                _line_of(error, target),
                f"_split_generators failed: {_shown(error)}.",
                "correct it, or the dummy data that replaces its downloads",
            )
        )
        return []
    return [item for item in inputs if item.collection is None]


def _check_split(
    target: CheckTarget,
    encoder: ExampleEncoder,
    item: SplitInput,
    node: str,
    examples: list[tuple[str, str]],
) -> None:
    """Appends the first examples' keys and hashes, up to the first one with an issue."""
    try:
        for position, (key, encode) in enumerate(_first(encoder, item)):
            where = f"{node}, example {position}"
            text = _key(key, where, target, {known for known, _ in examples})
            try:
                record = encode()[0].as_py()
            except MyDatasetsError:
                raise  # caused by the machine, for example by a program that is not installed
            except Exception as error:
                raise _unfit(where, text, error) from error
            examples.append((text, hashlib.sha256(record).hexdigest()))
    except _IssueError:
        raise
    except MyDatasetsError as error:
        raise _converted("generator", node, error) from error
    except BaseException as error:
        raise _IssueError(
            "generator",
            _line_of(error, target),
            f"The generator of {node} failed: {_shown(error)}.",
            "correct it, or its dummy data",
        ) from error
    if not examples:
        raise _IssueError(
            "empty-split",
            node,
            "The split has no examples.",
            "check that the generator looks where the dummy data is",
        )


def _first(
    encoder: ExampleEncoder, item: SplitInput
) -> Iterator[tuple[object, Callable[[], pa.LargeBinaryArray]]]:
    """Yields the first examples' keys, each with a function that encodes the example."""
    for _, batch in batches(iter(item.units), EXAMPLES, encoder.own):
        if isinstance(batch, tuple):
            keys, rows = with_keys(batch[0], batch[1], encoder.names, item.name)
            for i, key in enumerate(keys.to_pylist()):
                yield key, partial(encoder.columns, rows.slice(i, 1))
        else:
            for key, example in batch:
                yield key, partial(_row, encoder, example)


def _row(encoder: ExampleEncoder, example: object) -> pa.LargeBinaryArray:
    if isinstance(example, InvalidValue):
        raise example
    return encoder.row(example)


def _key(key: object, where: str, target: CheckTarget, known: set[str]) -> str:
    try:
        text = shuffle_order.key_bytes(key).decode(errors="backslashreplace")
    except InvalidKeyError as error:
        raise _converted("key", where, error) from error
    if text in known:
        raise _IssueError(
            "duplicate-key",
            where,
            f"The key {text!r} occurs twice.",
            "yield keys that are unique within the split",
        )
    if str(target.dummy_data) in text:
        raise _IssueError(
            "key-is-path",
            where,
            f"The key {text!r} contains a path on this machine.",
            "use the file's name, or its path relative to the source's directory",
        )
    return text


def _unfit(where: str, key: str, error: Exception) -> _IssueError:
    expected = found = ""
    problem = f"cannot be encoded: {_shown(error)}"
    if isinstance(error, InvalidValue):
        where += f", feature {error.feature}" if error.feature else ""
        problem = "does not fit the features"
        expected, found = error.expected, error.found
    return _IssueError(
        "example", where, f"The example with the key {key!r} {problem}.",
        "change what the builder yields, or its features", expected=expected, found=found,
    )  # fmt: skip


def _converted(code: str, node: str, error: MyDatasetsError) -> _IssueError:
    expected = [fact for fact in error.facts if fact.startswith("Expected")]
    return _IssueError(
        code,
        node,
        error.problem,
        error.fix,
        expected="; ".join(fact.removeprefix("Expected").lstrip(": ") for fact in expected),
        found="; ".join(fact for fact in error.facts if fact not in expected),
    )


def _shown(error: BaseException) -> str:
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line_of(error: BaseException, target: CheckTarget) -> str:
    """Returns the innermost line of the builder in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == target.source]
    if isinstance(error, SyntaxError) and error.filename == str(target.source):
        lines.append(error.lineno)
    return f"{target.source.name}:{lines[-1]}" if lines else target.source.name


def main() -> None:
    """Reads the target, and writes the report."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    for name in ("source", "root", "checksums", "dummy_data"):
        given[name] = Path(given[name])
    target = CheckTarget(**given)
    issues, trace = examine(target)
    report = {"issues": [issue.to_json() for issue in issues], "trace": trace}
    Path(sys.argv[2]).write_text(json.dumps(report), "utf-8")


if __name__ == "__main__":
    main()
