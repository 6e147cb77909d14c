"""`dataset_info.json`: a version's name, its splits and their files.

Every reader of the file calls this module first, TFDS included: it checks that file names stay in
the version's directory, and that each field has the type that TFDS writes.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from my_datasets.errors import IncompleteVersionError
from my_datasets.printable import PrintableError, clipped, reason
from my_datasets.storage.json_files import MalformedJsonError, read_json

FILE_NAME = "dataset_info.json"
# TFDS's defaults for splits that name none: `core/naming.py`, `core/file_adapters.py`.
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_DIGITS = 5
# What reading JSON of an unexpected form may raise.
MALFORMED = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError
)  # fmt: skip


@dataclass(frozen=True)
class DeclaredShard:
    """A file of a split, and its declared number of examples."""

    name: str
    examples: int


@dataclass(frozen=True)
class Declared:
    """The shards that `dataset_info.json` declares.

    Attributes:
      name: The dataset's full name, `name/config:version`.
      file_format: Such as `tfrecord`.
      splits: The shards of each split, in order.
    """

    name: str
    file_format: str
    splits: Mapping[str, tuple[DeclaredShard, ...]]

    @classmethod
    def read(cls, version_dir: Path) -> "Declared":
        """Returns the shards that a version declares; raises what `dataset_info` does."""
        return cls.of(dataset_info(version_dir))

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Declared":
        """Returns the shards declared in the result of `dataset_info`."""
        config = info.get("configName")
        name = f"{info['name']}{'/' + config if config else ''}:{info['version']}"
        form = info.get("fileFormat") or "tfrecord"
        splits = {one["name"]: _shards(info["name"], form, one) for one in info.get("splits", [])}
        return cls(name, form, splits)


def dataset_info(version_dir: Path) -> dict[str, Any]:
    """Returns the checked content of `dataset_info.json`, in TFDS's own spelling.

    Raises:
      FileNotFoundError: The file does not exist.
      IncompleteVersionError: It is not what TFDS writes, or names files outside of its directory.
    """
    path = version_dir / FILE_NAME
    try:
        return _checked(read_json(path))
    except FileNotFoundError:
        raise
    except (OSError, MalformedJsonError, _MalformedError) as error:
        raise IncompleteVersionError(
            f"{path} cannot be read.",
            f"Found: {reason(error)}",
            fix=f"my-datasets verify {version_dir} says what else is wrong; build or pull it again",
        ) from error


def essentials(version_dir: Path) -> dict[str, Any]:
    """Returns the `essentials_of` a version; raises what `dataset_info` does."""
    return essentials_of(dataset_info(version_dir))


def essentials_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the other fields of `dataset_info.json` that affect readers, for the manifest."""
    return {
        "supervisedKeys": info.get("supervisedKeys"),
        "disableShuffling": bool(info.get("disableShuffling", False)),
        "numBytes": {one["name"]: str(one.get("numBytes", 0)) for one in info.get("splits", [])},
    }


def is_plain_name(name: object) -> TypeGuard[str]:
    """Returns whether a value is a plain file name, not a path to another directory."""
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    encoded = name.encode("utf-8", "ignore")
    return len(encoded) <= _LONGEST_NAME and encoded.decode() == name


class _MalformedError(PrintableError, ValueError):
    """`dataset_info.json` is not what TFDS writes."""


# The fields that we or TFDS read, with their types. TFDS's parser also accepts names with
# underscores.
_FIELDS: Mapping[str, type] = {
    "name": str, "description": str, "version": str, "citation": str, "location": dict,
    "downloadSize": int, "downloadChecksums": dict, "schema": dict, "splits": list,
    "supervisedKeys": dict, "redistributionInfo": dict, "moduleName": str,
    "disableShuffling": bool, "configName": str, "configDescription": str, "configTags": list,
    "fileFormat": str, "alternativeFileFormats": list, "releaseNotes": dict, "isBlocked": str,
    "dataSourceAccesses": list,
}  # fmt: skip
_SPLIT_FIELDS: Mapping[str, type] = {
    "name": str, "numShards": int, "shardLengths": list, "numBytes": int, "statistics": dict,
    "filepathTemplate": str,
}  # fmt: skip
_NAMES = frozenset({"DATASET", "SPLIT", "FILEFORMAT", "SHARD_INDEX", "NUM_SHARDS", "SHARD_X_OF_Y"})
_LONGEST_NAME = 255
_MOST_EXAMPLES = 1 << 62


def _checked(given: object) -> dict[str, Any]:
    """Returns the content of a file, checked to have the form that TFDS writes."""
    info = _typed(given, _FIELDS, "it")
    for field in ("name", "version", "configName", "fileFormat"):
        is_needed = field in ("name", "version")
        if (is_needed or info.get(field)) and not _is_file_name(info.get(field)):
            raise _MalformedError(f"its {field} is {_shown(info.get(field))}")
    for field in ("releaseNotes", "redistributionInfo"):
        if not all(isinstance(one, str) for one in info.get(field, {}).values()):
            raise _MalformedError(f"its {field} is no object of texts")
    urls = _typed(info.get("location", {}), {"urls": list}, "its location").get("urls", [])
    if not all(isinstance(one, str) for one in urls):
        raise _MalformedError("its location has urls that are no texts")
    if "supervisedKeys" in info:
        _check_keys(info["supervisedKeys"])
    info["splits"] = [
        _typed(one, _SPLIT_FIELDS, "a split") for one in info.get("splits") or []
    ]  # fmt: skip
    names: list[str] = []
    for one in info["splits"]:
        if not _is_file_name(one.get("name")):
            raise _MalformedError(f"a split is called {_shown(one.get('name'))}")
        shards = _shards(info["name"], info.get("fileFormat") or "tfrecord", one)
        names += [shard.name for shard in shards]
        if not all(_is_file_name(shard.name) for shard in shards):
            raise _MalformedError(f"the shards of {one['name']} are not called as files are")
    if len({one["name"] for one in info["splits"]}) < len(info["splits"]):
        raise _MalformedError("two splits have one name")
    if len(set(names)) < len(names):
        raise _MalformedError("a shard belongs to two splits, or is listed twice")
    return info


def _typed(given: object, fields: Mapping[str, type], what: str) -> dict[str, Any]:
    """Returns an object with TFDS's own names; null members count as absent."""
    if not isinstance(given, dict):
        raise _MalformedError(f"{what} is no object")
    spelled = {_with_underscores(name): name for name in fields}
    found: dict[str, Any] = {}
    for member, value in given.items():
        known = spelled[member] if member in spelled else str(member)
        if known in found:
            raise _MalformedError(f"{what} has {clipped(known)} in two spellings")
        if value is None:
            continue
        found[known] = value
        expected = fields.get(known)
        if expected is int:
            _whole_number(value, known)
        elif expected is not None and not isinstance(value, expected):
            raise _MalformedError(f"{what} has {known} = {_shown(value)}")
    return found


def _with_underscores(name: str) -> str:
    return "".join(f"_{one.lower()}" if one.isupper() else one for one in name)


def _whole_number(value: object, what: str) -> int:
    """Returns a count, which `protobuf` writes as a string."""
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise TypeError
        found = int(value)
    except (ValueError, TypeError):
        raise _MalformedError(f"{what} is {_shown(value)}; expected a number") from None
    if not 0 <= found < _MOST_EXAMPLES:
        raise _MalformedError(f"{what} is {found}; expected 0 to 2**62")
    return found


def _check_keys(given: object, *, is_inner: bool = False) -> None:
    """Checks the declared input and target."""
    found = _typed(given, {"tuple": dict, "featureKey": str, "dict": dict}, "supervisedKeys")
    if is_inner and not {"tuple", "featureKey", "dict"} & set(found):
        raise _MalformedError("supervisedKeys has a member that names no feature")
    if "tuple" in found:
        for one in _typed(found["tuple"], {"items": list}, "supervisedKeys").get("items", []):
            _check_keys(one, is_inner=True)
    if "dict" in found:
        inner = _typed(found["dict"], {"dict": dict}, "supervisedKeys").get("dict", {})
        for one in inner.values():
            _check_keys(one, is_inner=True)


def _is_file_name(name: object) -> bool:
    return is_plain_name(name) and name.isprintable()


def _shown(value: object) -> str:
    return repr(value)[:80]


def _shards(name: str, form: str, split: Mapping[str, Any]) -> tuple[DeclaredShard, ...]:
    lengths = [_whole_number(length, "shardLengths") for length in split.get("shardLengths", [])]
    if sum(lengths) >= _MOST_EXAMPLES:
        raise _MalformedError(f"{split['name']} has {sum(lengths)} examples")
    template = split.get("filepathTemplate") or _TEMPLATE
    _check_template(template)
    values = {"DATASET": name, "SPLIT": split["name"], "FILEFORMAT": form}
    width = max(_DIGITS, len(str(len(lengths))))
    found = []
    for i, length in enumerate(lengths):
        number, count = f"{i:0{width}}", f"{len(lengths):0{width}}"
        numbers = {
            "SHARD_INDEX": number,
            "NUM_SHARDS": count,
            "SHARD_X_OF_Y": f"{number}-of-{count}",
        }
        found.append(DeclaredShard(template.format(**values, **numbers), length))
    return tuple(found)


def _check_template(template: str) -> None:
    """Checks a format string: only names, as widths take any memory, and attributes run code."""
    try:
        fields = list(string.Formatter().parse(template))
    except ValueError as error:
        raise _MalformedError(f"filepathTemplate {_shown(template)}: {error}") from None
    for _, name, width, conversion in fields:
        if name is not None and (name not in _NAMES or width or conversion):
            raise _MalformedError(
                f"filepathTemplate is {_shown(template)}; expected only "
                f"{{{'}, {'.join(sorted(_NAMES))}}}"
            )
    if len(template) > _LONGEST_NAME:
        raise _MalformedError("filepathTemplate is longer than the name of a file")
