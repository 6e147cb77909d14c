"""Machine-readable metadata of pages: schema.org and Croissant."""

import dataclasses
from collections.abc import Iterator

from my_datasets.catalog.first_records import batch_of
from my_datasets.catalog.releases import CatalogContents
from my_datasets.catalog.samples import UNREADABLE
from my_datasets.catalog.site.dataset_page import Card
from my_datasets.catalog.templating import web_address
from my_datasets.errors import FeatureError
from my_datasets.exporting import croissant as writing
from my_datasets.exporting.parquet import of_records
from my_datasets.exporting.version_summary import SummaryFile
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.metadata.features import Leaf
from my_datasets.metadata.version_metadata import VersionMetadata

EXAMPLES = "samples/examples.parquet"
# The maximum size of examples.
_MOST_BYTES = 4 << 20


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
    path, first = card.offered.path, card.samples.first
    if path is None or first is None:
        return None
    try:
        return of_records(path, batch_of(first.records()), _MOST_BYTES)
    except (*UNREADABLE, *MALFORMED):
        return None


def croissant(where: CatalogContents, card: Card, *, has_examples: bool) -> str:
    """Returns a dataset's Croissant description; "" if Croissant cannot express it.

    `has_examples` says whether a file with the first examples is beside it.
    """
    leaves: list[Leaf] = []
    if has_examples and card.offered.path is not None:
        leaves = VersionMetadata(card.offered.path).known_leaves or []
    about = dataclasses.replace(
        card.about, name=card.name, files=tuple(_files(where, card)), urls=card.homepages
    )
    try:
        made = writing.croissant(
            about, leaves, includes=EXAMPLES if leaves else "",
            records=f"The first examples of {card.samples.split}.",
        )  # fmt: skip
    except FeatureError:
        return ""
    return writing.as_text(made)


def _files(where: CatalogContents, card: Card) -> Iterator[SummaryFile]:
    config = f"{card.dataset.config}/" if card.dataset.config else ""
    folder = f"{card.dataset.name}/{config}{card.offered.version}"
    origin = where.origin.rstrip("/")
    if not (web_address(origin) or origin.startswith(("gs://", "s3://", "/"))):
        origin = "."
    for one in card.shards:
        yield SummaryFile(one.name, f"{origin}/{folder}/{one.name}", one.bytes, one.sha256)
