"""Writes the dataset card and the Croissant description of an export.

See https://docs.mlcommons.org/croissant/docs/croissant-spec.html. Records are described if they are
in Parquet files, which `mlcroissant` loads; TFRecord files are listed with their checksums.

The card is a `README.md` with YAML at its head, which Hugging Face's hub reads; see
https://huggingface.co/docs/hub/datasets-cards.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from my_datasets.core.json_types import JsonObject
from my_datasets.core.sizes import human_size
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import FeatureError
from my_datasets.exporting.arrow import ALONE
from my_datasets.exporting.parquet import ExportedFile
from my_datasets.exporting.version_summary import About, SummaryFile
from my_datasets.input_pipeline.read.prepared import Prepared
from my_datasets.metadata.features import Leaf, leaves_of
from my_datasets.printable import printable, printable_json

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


# The hub's names of common licenses.
_LICENCES = {
    "cc by 4.0": "cc-by-4.0", "cc-by-4.0": "cc-by-4.0", "cc by-sa 4.0": "cc-by-sa-4.0",
    "cc-by-sa-4.0": "cc-by-sa-4.0", "cc by-nc 4.0": "cc-by-nc-4.0", "cc-by-nc-4.0": "cc-by-nc-4.0",
    "cc0 1.0": "cc0-1.0", "cc0-1.0": "cc0-1.0", "cc0": "cc0-1.0", "mit": "mit",
    "apache 2.0": "apache-2.0", "apache-2.0": "apache-2.0", "apache license 2.0": "apache-2.0",
    "bsd-3-clause": "bsd-3-clause", "odc-by": "odc-by", "odbl": "odbl",
}  # fmt: skip
_SIZES = (
    (1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"), (1_000_000_000, "100M<n<1B"),
)  # fmt: skip
_LARGEST = "n>1B"
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_IMAGE = re.compile(r"!\[")
# Starts a code block, also in lists and quotes.
_FENCE = re.compile(r"`{3,}|~{3,}")


def readme(about: About, schema_note: str, bytes_of: Mapping[str, int]) -> str:
    """Returns the card of a version that was exported as Parquet files.

    `schema_note` is the metadata for `datasets` in their schema, as JSON, and `bytes_of` the size
    of each split's files.
    """
    given = _head(about, schema_note, bytes_of)
    head = yaml.safe_dump(given, allow_unicode=True, sort_keys=False, width=1000)
    if printable(head) != head:
        # Escapes hidden characters in names of features and classes.
        head = yaml.safe_dump(given, sort_keys=False, width=1000)
    parts = [f"# {_plain(about.name)}\n", _marked(_body(about))]
    if about.notes:
        parts.append(f"## Version {about.version}\n\n{_marked(about.notes)}")
    parts.append(
        "## Splits\n\n| split | examples | size |\n|---|--:|--:|\n"
        + "".join(
            f"| {_plain(name)} | {count:,} | {human_size(bytes_of.get(name, 0))} |\n"
            for name, count in about.examples.items()
            if name in bytes_of
        )
    )
    parts.append(
        "## Features\n\n| feature | kind | type | shape | description |\n|---|---|---|---|---|\n"
        + "".join(
            f"| {_plain(one.name or 'value')} | {_plain(one.kind)} | {_plain(one.dtype)} | "
            f"{one.shape} | {_plain(one.description)} |\n"
            for one in about.features
        )
    )
    if about.licence:
        parts.append(f"## Licence\n\n{_plain(about.licence)}")
    if about.citation:
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", about.citation)), default=0))
        parts.append(f"## Citation\n\n{fence}bibtex\n{about.citation}\n{fence}")
    if about.digest:
        parts.append(
            f"Digest of the content, as `my-datasets verify` computes it: `{about.digest}`"
        )
    body = "\n\n".join(part.strip("\n") for part in parts)
    return f"---\n{head}---\n\n{printable(body)}\n"


def _head(about: About, schema_note: str, bytes_of: Mapping[str, int]) -> dict[str, object]:
    total = sum(count for name, count in about.examples.items() if name in bytes_of)
    licence = _LICENCES.get(about.licence.lower())
    found: dict[str, object] = {"pretty_name": about.name}
    if licence:
        found["license"] = licence
    elif about.licence:
        found |= {"license": "other", "license_name": about.licence}
    found["size_categories"] = [next((n for most, n in _SIZES if total < most), _LARGEST)]
    found["tags"] = [*about.modalities, "my_datasets"]
    found["configs"] = [
        {
            "config_name": "default",
            "data_files": [{"split": name, "path": f"data/{name}-*"} for name in bytes_of],
        }
    ]
    features = json.loads(schema_note)["info"]["features"]
    found["dataset_info"] = {
        "features": [_feature(name, one) for name, one in features.items()],
        "splits": [
            {"name": name, "num_bytes": size, "num_examples": about.examples[name]}
            for name, size in bytes_of.items()
        ],
        "download_size": sum(bytes_of.values()),
        "dataset_size": sum(bytes_of.values()),
    }
    return found


def _feature(name: str, given: Any) -> dict[str, object]:
    return {"name": name, **_form(given)}


def _form(given: Any) -> dict[str, object]:
    kind = given.get("_type")
    if not isinstance(kind, str):  # a dict of features
        return {"struct": [_feature(name, one) for name, one in given.items()]}
    if kind == "List":
        inner = _form(given["feature"])
        return {"list": inner.get("dtype", inner) if set(inner) == {"dtype"} else inner}
    if kind == "ClassLabel":
        names = {str(number): name for number, name in enumerate(given["names"])}
        return {"dtype": {"class_label": {"names": names}}}
    return {"dtype": "image" if kind == "Image" else given["dtype"]}


def _body(about: About) -> str:
    text = about.description
    first, _, rest = text.partition("\n")
    if first.strip("# ").strip() in (about.name, about.name.partition("/")[0]):
        text = rest
    links = "\n".join(f"* <{url}>" for url in about.urls if url.startswith(("https://", "http://")))
    return "\n\n".join(filter(None, [text.strip(), links]))


def _marked(text: str) -> str:
    """Escapes HTML, images and fences in Markdown.

    An unclosed fence would extend into the rest of the card, and readers would fetch images.
    """
    safe = _TAG.sub(lambda found: "<" if _is_link(text, found.start()) else "&lt;", text)
    safe = _IMAGE.sub(r"&#33;[", safe)
    return _FENCE.sub(lambda found: "".join(f"\\{one}" for one in found[0]), safe)


def _is_link(text: str, at: int) -> bool:
    return re.match(r"<https?://[^\s<>]+>", text[at:]) is not None


def _plain(text: str) -> str:
    """Escapes a text for a table cell."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", line)


def describe(prepared: Prepared, directory: Path, files: Sequence[ExportedFile]) -> None:
    """Writes `README.md` and `croissant.json` to the directory of exported files."""
    about = About.read(prepared.metadata)
    bytes_of: dict[str, int] = {}
    for one in files:
        bytes_of[one.split] = bytes_of.get(one.split, 0) + one.bytes
    noted = pq.read_schema(directory / files[0].name).metadata[b"huggingface"].decode()
    (directory / "README.md").write_text(readme(about, noted, bytes_of), "utf-8")
    listed = [SummaryFile(one.name, one.name, one.bytes, one.sha256, PARQUET) for one in files]
    made = croissant(
        replace(about, files=listed), leaves_of(prepared.schema.tree), includes="data/*.parquet",
        records="All examples.", has_splits=True,
    )  # fmt: skip
    (directory / "croissant.json").write_text(as_text(made), "utf-8")
