"""Generates the source code of a builder and of its test.

Expressions are rendered as formatters do, with lines of at most 100 characters.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import tensorflow_datasets as tfds

from my_datasets.errors import SourceError
from my_datasets.scaffolding.inspection import InspectedColumn, Inspection

_WIDTH = 100

_ARROW = {
    pa.large_string(): "pa.string()",
    pa.string(): "pa.string()",
    pa.large_binary(): "pa.binary()",
}
# Documentation of nested features.
_INNER = "To be described."


@dataclass(frozen=True)
class Call:
    """A function call; the arguments are literals, calls or `Name`s."""

    function: str
    arguments: Sequence[object] = ()
    named: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Name:
    """An expression that is written verbatim."""

    text: str


def assigned(indent: int, before: str, value: object, behind: str = "") -> str:
    """Returns one or more indented lines with an expression between two texts.

    `value` is a literal, a `Call`, a `Name`, or lists, tuples and dicts of them.
    """
    text = " " * indent + before
    if len(text) + len(_flat(value)) + len(behind) <= _WIDTH:
        return f"{text}{_flat(value)}{behind}\n"
    return f"{text}{_tall(value, indent)}{behind}\n"


def _flat(value: object) -> str:
    if isinstance(value, Name):
        return value.text
    if isinstance(value, Call):
        named = [f"{name}={_flat(item)}" for name, item in (value.named or {}).items()]
        return f"{value.function}({', '.join([*map(_flat, value.arguments), *named])})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flat(k)}: {_flat(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_flat, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flat, value)) + "]"
    if not isinstance(value, str):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False)
    # Formatters use the quotation marks that need fewer backslashes.
    needs_only_them = '"' in value and "'" not in value and text.count("\\") == value.count('"')
    return f"'{value}'" if needs_only_them else text


def _tall(value: object, indent: int) -> str:
    inner = indent + 4
    if isinstance(value, Call):
        opening, closing = f"{value.function}(", ")"
        parts = [("", item) for item in value.arguments]
        parts += [(f"{name}=", item) for name, item in (value.named or {}).items()]
    elif isinstance(value, Mapping):
        opening, closing = "{", "}"
        parts = [(f"{_flat(key)}: ", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
        parts = [("", item) for item in value]
    else:
        return _flat(value)  # a string that is too long is not split
    lines = "".join(assigned(inner, before, item, ",") for before, item in parts)
    return f"{opening}\n{lines}{' ' * indent}{closing}"


@dataclass(frozen=True)
class SplitCode:
    """How rows are split."""

    # Of each split; None if a column determines it, or there is only one.
    shares: Mapping[str, float] | None = None
    column: str | None = None  # that determines the split, by its name in the data
    group: str | None = None  # the column whose equal values stay in the same split
    stratify: str | None = None  # the column whose values have the same proportions in each split
    folds: int | None = None  # the number of equal folds, instead of shares

    @property
    def is_one(self) -> bool:
        """Whether everything is in one split."""
        return self.shares is None and self.column is None and self.folds is None


def builder(
    name: str,
    found: Inspection,
    split: SplitCode,
    *,
    url: str | None,
    file_name: str,
    inside: str = "",
) -> str:
    """Returns the source code of a builder.

    Without a `url`, the data is provided manually. `inside` is the path or pattern within the file
    if it is an archive.
    """
    features = Call(
        "tfds.features.FeaturesDict",
        [{column.feature: _feature(found, column) for column in found.columns}],
    )
    info: dict[str, object] = {"features": features}
    if found.label is not None:
        info["supervised_keys"] = (_input(found), found.label)
    returned = assigned(8, "return ", Call("self.dataset_info_from_configs", named=info))
    read = _read(found, split)
    instructions = f"Put {file_name} into the directory of --manual-dir."
    by_hand = "" if url else assigned(4, "MANUAL_DOWNLOAD_INSTRUCTIONS = ", instructions)
    place = assigned(0, "_URL = ", url) if url else assigned(0, "_FILE = ", file_name)
    get = "dl_manager.download(_URL)" if url else "dl_manager.manual_dir / _FILE"
    path = f'f"{{{get}}}::{inside}"' if inside else f"str({get})"
    imports = "import numpy as np\n" if "np." in returned else ""
    imports += "import pyarrow as pa\n" if "pa." in read else ""
    return f'''"""`{name}`: to be described."""

from typing import Any

{imports}import tensorflow_datasets as tfds

import my_datasets
from my_datasets import sources

{place}

class Builder(my_datasets.Builder):
    """Builds `{name}`."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {{"1.0.0": "First release."}}
{by_hand}
    def _info(self) -> tfds.core.DatasetInfo:
{returned}
    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        path = {path}
{read}'''


def test(name: str, module: str, sizes: Mapping[str, int], download: str | None) -> str:
    """Returns the source code of a builder's test.

    `sizes` has the number of dummy examples per split; `download` is the dummy file that replaces
    the download, or None if the data is provided manually.
    """
    package, _, last = module.rpartition(".")
    title = "".join(part.capitalize() for part in name.split("_"))
    got = assigned(4, "DL_DOWNLOAD_RESULT = ", download) if download else ""
    return f'''"""`{name}`, on its dummy data."""

import my_datasets
from {package} import {last}


class {title}Test(my_datasets.testing.BuilderTestCase):
    DATASET_CLASS = {last}.Builder
{got}{assigned(4, "SPLITS = ", dict(sizes))}'''


def _read(found: Inspection, split: SplitCode) -> str:
    lines = ""
    options = dict(found.options)
    for name in ("types", "columns"):
        types = options.get(name)
        if isinstance(types, Mapping) and types:
            kinds = {column: Name(_arrow(kind)) for column, kind in types.items()}
            lines += assigned(8, f"{name} = ", kinds)
            options[name] = Name(name)
    if found.kind == "sql":
        read = Call("sources.sql", (), {"database": Name("path"), **options})
    else:
        read = Call(f"sources.{found.kind}", [Name("path")], options)
    lines += assigned(8, "data = ", read)
    renamed = {column.feature: column.name for column in found.columns}
    select = ""
    if any(feature != name for feature, name in renamed.items()):
        lines += assigned(8, "named = ", renamed)
        select = ".select(named)"
    if split.is_one:
        return lines + f'        return {{"train": data{select}}}\n'
    if split.column is not None:
        groups = {_split_name(value): [value] for value in found.values[split.column]}
        call = Call("data.split_by", [split.column, groups])
    else:
        how = {"group": split.group, "stratify": split.stratify}
        given = {key: value for key, value in how.items() if value is not None}
        if split.folds is not None:
            call = Call("data.folds", [split.folds], given)
        else:
            call = Call("data.split", [dict(split.shares or {})], given)
    lines += assigned(8, "splits = ", call)
    if select:
        return lines + f"        return {{name: part{select} for name, part in splits.items()}}\n"
    return lines + "        return dict(splits)\n"


def _split_name(value: object) -> str:
    text = str(value).lower()
    return "".join(c if c.isalnum() else "_" for c in text).strip("_") or "none"


def _arrow(kind: pa.DataType) -> str:
    if kind in _ARROW:
        return _ARROW[kind]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"pa.list_({_arrow(kind.value_type)})"
    names = {"double": "float64", "float": "float32", "bool": "bool_"}
    return f"pa.{names.get(str(kind), kind)}()"


def _input(found: Inspection) -> object:
    """Returns the features from which the label is to be predicted, for `supervised_keys`."""
    others = [column.feature for column in found.columns if column.feature != found.label]
    for main in ("image", "audio", "video"):
        if main in others:
            return main
    return others[0] if len(others) == 1 else {name: name for name in others}


def _feature(found: Inspection, column: InspectedColumn) -> Call:
    labels = {column.name: column.classes} if column.classes else {}
    return _call(found.source.features(labels)[column.name], column.doc)


def _call(feature: tfds.features.FeatureConnector, doc: str | None) -> Call:
    kind = type(feature)
    function = f"tfds.features.{kind.__name__}"
    named: dict[str, object] = {}
    arguments: list[object] = []
    if kind is tfds.features.ClassLabel:
        named["names"] = list(feature.names)
    elif kind is tfds.features.Audio:
        named |= {
            "shape": feature.shape,
            "dtype": Name(f"np.{feature.np_dtype}"),
            "sample_rate": feature.sample_rate,
        }
    elif kind is tfds.features.Video:
        named |= {"shape": feature.shape, "encoding_format": "jpeg"}
    elif kind is tfds.features.Scalar:
        arguments = [Name(_dtype(feature))]
    elif kind is tfds.features.Tensor:
        named |= {"shape": feature.shape, "dtype": Name(_dtype(feature))}
    elif kind is tfds.features.Sequence:
        is_dict = type(feature.feature) is tfds.features.FeaturesDict
        arguments = [_call(feature.feature, _INNER if is_dict else None)]
    elif kind is tfds.features.FeaturesDict:
        arguments = [{name: _call(of, _INNER) for name, of in feature.items()}]
        doc = None  # its parts each have their own
    elif kind not in (tfds.features.Text, tfds.features.Image):
        raise SourceError(
            f"The code of the feature {feature!r} cannot be written.", fix="leave its column out"
        )
    is_tensor = kind in (tfds.features.Scalar, tfds.features.Tensor)
    if is_tensor and feature.get_serialized_info().optional:
        named["optional"] = True
    if doc:
        named["doc"] = doc
    return Call(function, arguments, named)


def _dtype(feature: tfds.features.FeatureConnector) -> str:
    name = str(feature.np_dtype)
    return {"object": "np.object_", "bool": "np.bool_"}.get(
        name, "np.str_" if name.startswith(("<U", "str")) else f"np.{name}"
    )
