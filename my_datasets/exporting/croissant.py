"""Croissant: metadata of datasets as JSON-LD, for dataset search engines.

See https://docs.mlcommons.org/croissant/docs/croissant-spec.html. Records are described if they are
in Parquet files, which `mlcroissant` loads; TFRecord files are listed with their checksums.
"""

import json
import re
from collections.abc import Iterator, Sequence

from my_datasets.core.json_types import JsonObject
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import FeatureError
from my_datasets.exporting.arrow import ALONE
from my_datasets.exporting.version_summary import About
from my_datasets.metadata.features import Leaf
from my_datasets.printable import printable_json

try:
    import mlcroissant as mlc
except ModuleNotFoundError as missing:
    raise missing_dependency("mlcroissant", needed_for="Croissant") from missing

PARQUET = "application/x-parquet"
FILES = "parquet-files"
RECORDS = "examples"
# Names that need no quotes in a JSON path.
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES = {
    "bool": mlc.DataType.BOOL, "int8": mlc.DataType.INT8, "int16": mlc.DataType.INT16,
    "int32": mlc.DataType.INT32, "int64": mlc.DataType.INT64, "uint8": mlc.DataType.UINT8,
    "uint16": mlc.DataType.UINT16, "uint32": mlc.DataType.UINT32, "uint64": mlc.DataType.UINT64,
    "float16": mlc.DataType.FLOAT32, "float32": mlc.DataType.FLOAT32,
    "float64": mlc.DataType.FLOAT64,
}  # fmt: skip


def croissant(
    about: About,
    leaves: Sequence[Leaf],
    *,
    includes: str = "",
    records: str = "",
    has_splits: bool = False,
) -> dict[str, object]:
    """Returns the description of a version, as JSON.

    Args:
      about: The version's metadata.
      leaves: The leaves of its features.
      includes: A pattern of Parquet files with examples, such as `data/*.parquet`; empty if there
        are none.
      records: A description of these examples.
      has_splits: Whether the files' names start with the name of their split.

    Raises:
      FeatureError: Croissant cannot express the metadata.
    """
    distribution: list[object] = [
        mlc.FileObject(
            id=f"file-{at}", name=one.name, content_url=one.url, encoding_formats=[one.kind],
            content_size=f"{one.bytes} B", sha256=one.sha256,
        )
        for at, one in enumerate(about.files)
    ]  # fmt: skip
    sets = []
    if includes:
        distribution.append(
            mlc.FileSet(
                id=FILES, name=FILES, description="Parquet files with examples.",
                encoding_formats=[PARQUET], includes=[includes],
            )
        )  # fmt: skip
        fields = [*_fields(about, leaves), *([_split_field()] if has_splits else [])]
        sets.append(mlc.RecordSet(id=RECORDS, name=RECORDS, description=records, fields=fields))
    try:
        made = mlc.Metadata(
            name=about.name, description=about.description or about.name,
            license=[about.licence] if about.licence else None, cite_as=about.citation or None,
            url=about.urls[0] if about.urls else None, version=about.version,
            keywords=list(about.modalities) or None, date_published=about.published or None,
            distribution=distribution, record_sets=sets,
        )  # fmt: skip
        found: dict[str, object] = made.to_json()
    except (mlc.ValidationError, ValueError) as error:
        raise FeatureError(
            f"{about.name}:{about.version} cannot be described for Croissant.",
            f"mlcroissant said: {str(error)[:500]}",
            fix="correct the metadata of the version",
        ) from error
    return found


def as_text(description: JsonObject) -> str:
    """Returns a description as the text of a file."""
    return printable_json(json.dumps(description, indent=1, ensure_ascii=False, default=str)) + "\n"


def _fields(about: About, leaves: Sequence[Leaf]) -> Iterator["mlc.Field"]:
    for leaf in leaves:
        path = leaf.path or (ALONE,)
        if not all(map(_PLAIN.fullmatch, path[1:])):
            continue  # JSON paths cannot express it
        steps = [*path[1:], *(["bytes"] if leaf.form == "image" else [])]
        extract = mlc.Extract(column=path[0])
        transforms = [mlc.Transform(json_path=".".join(steps))] if steps else []
        if leaf.sequence and leaf.form == "image":
            continue  # mlcroissant does not support lists of images in structs
        source = mlc.Source(file_set=FILES, extract=extract, transforms=transforms)
        said = about.descriptions.get(leaf.name, "")
        if leaf.labels:
            names = ", ".join(f"{number}: {name}" for number, name in enumerate(leaf.labels[:50]))
            said = f"{said} Classes: {names}{', …' if len(leaf.labels) > 50 else ''}".strip()
        is_list = bool(leaf.sequence) or (leaf.form == "number" and bool(leaf.shape))
        yield mlc.Field(
            id=f"{RECORDS}/{'/'.join(path)}", name="/".join(path), description=said or None,
            data_types=[_type(leaf)], repeated=is_list, source=source,
        )  # fmt: skip


def _split_field() -> "mlc.Field":
    # Not among the features, one of which may have the same name.
    regex = mlc.Transform(regex=r".*/([^/]+)-\d{5}-of-\d{5}\.parquet$")
    extract = mlc.Extract(file_property=mlc.FileProperty.fullpath)
    source = mlc.Source(file_set=FILES, extract=extract, transforms=[regex])
    return mlc.Field(
        id=f"{RECORDS}-split", name="split of the example", description="The split it belongs to.",
        data_types=[mlc.DataType.TEXT], source=source,
    )  # fmt: skip


def _type(leaf: Leaf) -> "mlc.DataType":
    if leaf.form == "image":
        return mlc.DataType.IMAGE_OBJECT
    if leaf.form == "bytes":
        return mlc.DataType.TEXT
    return _TYPES.get(leaf.dtype, mlc.DataType.INTEGER)
