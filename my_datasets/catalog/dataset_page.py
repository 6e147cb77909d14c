"""The content of a dataset's page: metadata, examples, code that loads it; and its JSON-LD.

The JSON-LD is schema.org and Croissant, for search engines.
"""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from markupsafe import Markup

from my_datasets.catalog.feature_summary import FeatureSummary, in_usual_order, summaries
from my_datasets.catalog.first_records import batch_of, beginning
from my_datasets.catalog.pages import first_words, prose, web_address
from my_datasets.catalog.releases import (
    CatalogContents,
    CatalogVersion,
    Changes,
    Dataset,
    VersionComparer,
)
from my_datasets.catalog.samples import UNREADABLE, Samples, samples
from my_datasets.core.json_types import JsonObject
from my_datasets.errors import FeatureError, MyDatasetsError, problem_of
from my_datasets.exporting import descriptions as writing
from my_datasets.exporting.parquet import of_records
from my_datasets.exporting.version_summary import About, SummaryFile
from my_datasets.metadata.content import ShardContent
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata

_BATCH = 64
_SIZE = (224, 224)
# The format that our readers for JAX and PyTorch support, and the one that tf.data does not.
_READ_BY_US = "tfrecord"
_NOT_BY_TENSORFLOW = "array_record"


@dataclass(frozen=True)
class Snippet:
    """A piece of code, with the title of its tab, and a note."""

    title: str
    code: str
    note: str = ""


def snippets(
    contents: CatalogContents,
    dataset: Dataset,
    shown: CatalogVersion,
    split: str,
    *,
    has_sizes: bool,
    file_format: str = _READ_BY_US,
) -> list[Snippet]:
    """Returns code that loads a split of a version; `has_sizes` if its images differ in size."""
    name = f"{dataset.full_name}:{shown.version}"
    reference, origin = repr(name), repr(contents.origin)
    options = [f"split={split!r}", f"batch_size={_BATCH}"]
    options += [f"image_size={_SIZE}"] if has_sizes else []
    if contents.is_store:
        first = f"version = mds.pull({reference}, {origin})  # once; every byte is verified\n"
        given = ["version", *options]
        loaded = f"mds.load({reference}, store={origin}, split={split!r})"
    else:
        first = ""
        given = [reference, f"data_dir={origin}", *options]
        loaded = f"mds.load({reference}, data_dir={origin}, split={split!r})"
    arguments = ", ".join(given)
    # TFDS can read stores in directories and in gs://.
    by_tfds = "://" not in contents.origin or contents.origin.startswith("gs://")
    found = []
    if file_format != _NOT_BY_TENSORFLOW:
        code = (
            f"import my_datasets as mds\n\ntrain = {loaded}\n"
            f"for example in train.take(3):\n    print(example)\n"
        )
        found.append(Snippet("TensorFlow", code))
    if file_format == _READ_BY_US:
        found += [
            Snippet(
                "JAX",
                f"import jax\nimport my_datasets as mds\n\n{first}"
                f"for batch in mds.batches({arguments}):\n    batch = jax.device_put(batch)\n",
                "No TensorFlow is loaded.",
            ),
            Snippet(
                "PyTorch",
                f"import my_datasets as mds\n\n{first}"
                f"for batch in mds.torch_loader({arguments}):\n    ...\n",
                "No TensorFlow is loaded.",
            ),
        ]  # fmt: skip
    elif contents.is_store:
        code = (
            f"import my_datasets as mds\nimport tensorflow_datasets as tfds\n\n{first}"
            f"train = tfds.builder_from_directory(version).as_data_source(split={split!r})\n"
            f"for example in train:\n    ...\n"
        )
        found.append(Snippet("JAX and PyTorch", code, "NumPy arrays, at random."))
    if by_tfds:
        load = "data_source" if file_format == _NOT_BY_TENSORFLOW else "load"
        code = (
            f"import tensorflow_datasets as tfds\n\n"
            f"train = tfds.{load}({reference}, data_dir={origin}, split={split!r})\n"
        )
        found.append(Snippet("TFDS alone", code, "Needs nothing but TFDS."))
    if contents.is_store:
        code = f"my-datasets pull {shlex.quote(name)} --from {shlex.quote(contents.origin)}\n"
        found.append(Snippet("Command line", code))
    return found


@dataclass(frozen=True)
class SplitSection:
    """A split: its numbers of examples and shards, and their size in bytes."""

    name: str
    examples: int
    shards: int
    bytes: int


@dataclass(frozen=True)
class VersionRow:
    """A row in the list of versions, with the changes since the previous one, if any."""

    available: CatalogVersion
    notes: Markup
    digest: str
    examples: int
    changes: Changes | None


@dataclass(frozen=True)
class Card:
    """The content of a dataset's page, which shows the version `available`.

    Attributes:
      problem: Why the version cannot be shown; else empty.
      supervised: Its input and target features, if declared.
      blocked: Why it is blocked; else empty.
    """

    dataset: Dataset
    available: CatalogVersion
    problem: str = ""
    about: About = field(default_factory=lambda: About("", ""))
    supervised: str = ""
    splits: tuple[SplitSection, ...] = ()
    summaries: tuple[FeatureSummary, ...] = ()
    samples: Samples = field(default_factory=Samples)
    versions: tuple[VersionRow, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    manifest: Manifest | None = None
    blocked: str = ""

    @property
    def name(self) -> str:
        """The dataset's name with the config."""
        return self.dataset.full_name

    @property
    def reference(self) -> str:
        """The full name with config and version."""
        return f"{self.name}:{self.available.version}"

    @cached_property
    def description(self) -> Markup:
        """The description as HTML."""
        return prose(self.about.description, self.dataset.name)

    @cached_property
    def summary(self) -> str:
        """The first words of the description."""
        return first_words(self.about.description, self.dataset.name)

    @property
    def is_summarized(self) -> bool:
        """Whether the summary is the whole description."""
        text = " ".join(self.about.description.split()).removeprefix(f"# {self.dataset.name} ")
        return text == self.summary

    @property
    def homepages(self) -> list[str]:
        """Safe URLs of its homepages."""
        return [found for one in self.about.urls if (found := web_address(one))]

    @property
    def examples(self) -> int:
        """The number of examples."""
        return sum(one.examples for one in self.splits)

    @property
    def bytes(self) -> int:
        """The size of all shards."""
        return sum(one.bytes for one in self.splits)

    @property
    def shards(self) -> list[ShardContent]:
        """The shards listed in its manifest."""
        content = self.manifest.content if self.manifest else None
        return [one for split in content.splits.values() for one in split.shards] if content else []


def card(
    contents: CatalogContents,
    dataset: Dataset,
    comparing: VersionComparer | None,
    *,
    with_samples: bool = True,
) -> Card:
    """Returns the content of a dataset's page; invalid metadata becomes its `problem`.

    Without `comparing` it shows no changes, and without `with_samples` no examples.
    """
    shown = dataset.shown
    if shown.path is None:
        return Card(dataset, shown, problem=shown.message or "It cannot be read.")
    try:
        return _card(contents, dataset, shown, shown.path, comparing, with_samples=with_samples)
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        return Card(dataset, shown, problem=f"{type(error).__name__}: {problem_of(error)}")


def _card(
    contents: CatalogContents,
    dataset: Dataset,
    shown: CatalogVersion,
    path: Path,
    comparing: VersionComparer | None,
    *,
    with_samples: bool,
) -> Card:
    metadata = VersionMetadata(path)
    info, declared, manifest = metadata.info, metadata.declared, metadata.manifest
    about = replace(About.read(metadata), published=shown.published)
    splits = tuple(_splits(info, declared, manifest))
    filled = in_usual_order(one.name for one in splits if one.examples)
    shown_examples = Samples()
    if with_samples and shown.no_examples:
        shown_examples = Samples(note=f"Its examples are not shown: {shown.no_examples}")
    elif with_samples:
        first = shown.first or (beginning(path) if shown.has_shards else None)
        shown_examples = samples(path, first, about.features)
    has_sizes = any(
        one.kind == "image" and "?" in one.shape.split(" x ")[:2] for one in about.features
    )
    keys = (info.get("supervisedKeys") or {}).get("tuple", {}).get("items", [])
    names = [one.get("featureKey") or ", ".join(_names_in(one)) for one in keys]
    return Card(
        dataset, shown, "", about,
        " → ".join(map(str, names)), splits,
        tuple(summaries(manifest.statistics if manifest else {})), shown_examples,
        tuple(_versions(dataset, info, comparing)),
        tuple(snippets(contents, dataset, shown, filled[0] if filled else "train",
                       has_sizes=has_sizes, file_format=declared.file_format)),
        manifest, metadata.blocked_reason or "",
    )  # fmt: skip


def _names_in(key: object) -> Iterator[str]:
    """Yields the names of the features in an input or target, which TFDS may nest."""
    if isinstance(key, Mapping):
        if "featureKey" in key:
            yield str(key["featureKey"])
        else:
            for one in key.values():
                yield from _names_in(one)
    elif isinstance(key, list):
        for one in key:
            yield from _names_in(one)


def _splits(info: JsonObject, declared: Declared, manifest: Manifest | None) -> list[SplitSection]:
    noted = {str(one["name"]): int(one.get("numBytes", 0)) for one in info.get("splits", [])}
    content = manifest.content if manifest else None
    if content:
        noted |= {
            name: sum(one.bytes for one in split.shards) for name, split in content.splits.items()
        }
    return [
        SplitSection(name, sum(one.examples for one in shards), len(shards), noted.get(name, 0))
        for name, shards in declared.splits.items()
    ]


def _versions(
    dataset: Dataset, info: JsonObject, comparing: VersionComparer | None
) -> list[VersionRow]:
    older = [*dataset.versions[1:], None]
    return [
        _version(one, info, comparing.changes(before, one) if comparing and before else None)
        for one, before in zip(dataset.versions, older, strict=True)
    ]


def _version(available: CatalogVersion, newest: JsonObject, changes: Changes | None) -> VersionRow:
    notes = newest.get("releaseNotes", {}).get(str(available.version), "")
    digest, examples = "", 0
    try:
        if available.path is not None:
            own = VersionMetadata(available.path)
            notes = own.info.get("releaseNotes", {}).get(str(available.version), "") or notes
            examples = sum(one.examples for some in own.declared.splits.values() for one in some)
            content = own.manifest.content if own.manifest else None
            digest = content.digest if content else ""
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        notes = f"It cannot be read: {problem_of(error)}"
    return VersionRow(available, prose(str(notes)), digest, examples, changes)


EXAMPLES = "samples/examples.parquet"
# The maximum size of examples.
_MOST_EXAMPLES_BYTES = 4 << 20


def schema_org(card: Card) -> dict[str, object]:
    """Returns a dataset as https://schema.org/Dataset, for search engines."""
    about = card.about
    found: dict[str, object] = {
        "@context": "https://schema.org/",
        "@type": "Dataset",
        "name": card.name,
        "description": card.summary or card.name,
        "version": about.version,
        "license": about.licence,
        "citation": about.citation,
        "url": card.homepages[0] if card.homepages else "",
        "datePublished": about.published,
        "keywords": list(about.modalities),
        "variableMeasured": [one.name for one in about.features if one.name][:50],
        "size": f"{card.bytes} B",
    }
    return {name: value for name, value in found.items() if value}


def examples_file(card: Card) -> bytes | None:
    """Returns the first examples as a Parquet file; None if they are unavailable."""
    path, first = card.available.path, card.samples.first
    if path is None or first is None:
        return None
    try:
        return of_records(path, batch_of(first.records()), _MOST_EXAMPLES_BYTES)
    except (*UNREADABLE, *MALFORMED):
        return None


def croissant_description(contents: CatalogContents, card: Card, *, has_examples: bool) -> str:
    """Returns a dataset's Croissant description; "" if Croissant cannot express it.

    `has_examples` says whether a file with the first examples is beside it.
    """
    leaves: list[Leaf] = []
    if has_examples and card.available.path is not None:
        leaves = VersionMetadata(card.available.path).known_leaves or []
    about = replace(
        card.about, name=card.name, files=tuple(_summary_files(contents, card)), urls=card.homepages
    )
    try:
        made = writing.croissant(
            about, leaves, includes=EXAMPLES if leaves else "",
            records=f"The first examples of {card.samples.split}.",
        )  # fmt: skip
    except FeatureError:
        return ""
    return writing.as_text(made)


def _summary_files(contents: CatalogContents, card: Card) -> Iterator[SummaryFile]:
    config = f"{card.dataset.config}/" if card.dataset.config else ""
    folder = f"{card.dataset.name}/{config}{card.available.version}"
    origin = contents.origin.rstrip("/")
    if not (web_address(origin) or origin.startswith(("gs://", "s3://", "/"))):
        origin = "."
    for one in card.shards:
        yield SummaryFile(one.name, f"{origin}/{folder}/{one.name}", one.bytes, one.sha256)
