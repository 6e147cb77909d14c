"""The content of a dataset's page, ready for the template."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from markupsafe import Markup

from my_datasets.catalog.plots.feature_summary import FeatureSummary, in_usual_order, summaries
from my_datasets.catalog.releases import (
    CatalogContents,
    CatalogVersion,
    Changes,
    Dataset,
    VersionComparer,
)
from my_datasets.catalog.samples.first_records import beginning
from my_datasets.catalog.samples.samples import Samples, samples
from my_datasets.catalog.site.snippets import Snippet, snippets
from my_datasets.catalog.templating import first_words, prose, web_address
from my_datasets.core.value_types import JsonObject
from my_datasets.errors import MyDatasetsError, problem_of
from my_datasets.exporting.version_summary import About
from my_datasets.metadata.content import ShardContent
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.version_metadata import VersionMetadata


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

    offered: CatalogVersion
    notes: Markup
    digest: str
    examples: int
    changes: Changes | None


@dataclass(frozen=True)
class Card:
    """The content of a dataset's page, which shows the version `offered`.

    Attributes:
      problem: Why the version cannot be shown; else empty.
      supervised: Its input and target features, if declared.
      blocked: Why it is blocked; else empty.
    """

    dataset: Dataset
    offered: CatalogVersion
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
        return f"{self.name}:{self.offered.version}"

    @cached_property
    def description(self) -> Markup:
        """The description as HTML."""
        return prose(self.about.description, self.dataset.name)

    @cached_property
    def summary(self) -> str:
        """The first words of the description."""
        return first_words(self.about.description, self.dataset.name)

    @property
    def is_told(self) -> bool:
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
    where: CatalogContents,
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
        return _card(where, dataset, shown, shown.path, comparing, with_samples=with_samples)
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        return Card(dataset, shown, problem=f"{type(error).__name__}: {problem_of(error)}")


def _card(
    where: CatalogContents,
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
    taken = Samples()
    if with_samples and shown.no_examples:
        taken = Samples(note=f"Its examples are not shown: {shown.no_examples}")
    elif with_samples:
        first = shown.first or (beginning(path) if shown.has_shards else None)
        taken = samples(path, first, about.features)
    has_sizes = any(
        one.kind == "image" and "?" in one.shape.split(" x ")[:2] for one in about.features
    )
    keys = (info.get("supervisedKeys") or {}).get("tuple", {}).get("items", [])
    told = [one.get("featureKey") or ", ".join(_names_in(one)) for one in keys]
    return Card(
        dataset, shown, "", about,
        " → ".join(map(str, told)), splits,
        tuple(summaries(manifest.statistics if manifest else {})), taken,
        tuple(_versions(dataset, info, comparing)),
        tuple(snippets(where, dataset, shown, filled[0] if filled else "train",
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
    rows = []
    older = [*dataset.versions[1:], None]
    for one, before in zip(dataset.versions, older, strict=True):
        changes = comparing.changes(before, one) if comparing and before else None
        rows.append(_version(one, info, changes))
    return rows


def _version(offered: CatalogVersion, newest: JsonObject, changes: Changes | None) -> VersionRow:
    notes = newest.get("releaseNotes", {}).get(str(offered.version), "")
    digest, examples = "", 0
    try:
        if offered.path is not None:
            own = VersionMetadata(offered.path)
            notes = own.info.get("releaseNotes", {}).get(str(offered.version), "") or notes
            examples = sum(one.examples for some in own.declared.splits.values() for one in some)
            content = own.manifest.content if own.manifest else None
            digest = content.digest if content else ""
    except (MyDatasetsError, OSError, *MALFORMED) as error:
        notes = f"It cannot be read: {problem_of(error)}"
    return VersionRow(offered, prose(str(notes)), digest, examples, changes)
