"""The catalogue as a static site: an index, and a page for each dataset."""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from jinja2.utils import htmlsafe_json_dumps

from my_datasets.catalog.releases import Collected, Dataset
from my_datasets.catalog.site.dataset_page import Card, card
from my_datasets.catalog.site.directory import Site, plain
from my_datasets.catalog.site.jsonld import EXAMPLES, croissant, examples_file, schema_org
from my_datasets.catalog.site.search_index import Entry, facets, style
from my_datasets.catalog.templating import UnshowableError, render, static
from my_datasets.catalog.version_changes import Comparing
from my_datasets.metadata.dataset_info import MALFORMED

_ASSETS = ("catalog.css", "catalog.js", "icon.svg")


@dataclass(frozen=True)
class Rendered:
    """What was made.

    Attributes:
      datasets: How many datasets, configs counted.
      versions: How many versions of them.
      problems: What cannot be shown, and why, by dataset.
    """

    datasets: int
    versions: int
    problems: Mapping[str, str]


def write(
    where: Collected,
    directory: str | os.PathLike[str],
    *,
    title: str | None = None,
    address: str | None = None,
    comparing: Comparing | None = None,
    with_samples: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> Rendered:
    """Writes a catalogue, or renews it.

    Args:
      where: What there is.
      directory: Where to.
      title: What it is called; None for what it is called already.
      address: The address that pages name as that of the store, if others reach it by another
        one; None for the one they name already.
      comparing: Finds what changed from version to version; None to leave that out.
      with_samples: Whether examples are read and shown.
      report: Is told of each dataset when its page is written.

    Raises:
      DataDirError: The directory holds something else, or cannot be written.
    """
    site = Site(directory)
    title = title or site.told.get("title") or "Datasets"
    address = address or site.told.get("address")
    site.told = {"title": title, **({"address": address} if address else {})}
    where = replace(where, origin=address) if address else where
    site.begin()
    for name in _ASSETS:
        site.write(f"assets/{name}", static(name))
    entries: list[Entry] = []
    problems: dict[str, str] = {}
    for _, group in itertools.groupby(where.datasets, key=lambda one: one.name):
        some = list(group)
        pages = {one.config: _page_of(one) for one in some}
        for one in some:
            made = card(where, one, comparing, with_samples=with_samples)
            try:
                _write_page(site, title, where, made, pages)
            except (UnshowableError, *MALFORMED) as error:
                # Metadata that say other things than they should.
                made = Card(one, one.shown, problem=f"{type(error).__name__}: {error}")
                _write_page(site, title, where, made, pages)
            if made.problem:
                problems[made.name] = made.problem
            if one.is_default:
                others = {config: page for config, page in pages.items() if config != one.config}
                entries.append(
                    Entry(
                        made, pages[one.config], {str(name): page for name, page in others.items()}
                    )
                )
            report(made.name)
    found = facets(entries)
    site.write("assets/facets.css", style(found, entries))
    index = {"title": title, "root": "", "where": where, "entries": entries, "facets": found}
    site.write("index.html", render("index.html", index))
    site.finish()
    versions = sum(len(one.versions) for one in where.datasets)
    return Rendered(len(where.datasets), versions, problems)


def _page_of(dataset: Dataset) -> str:
    """Returns the folder of a dataset's page."""
    name = f"datasets/{plain(dataset.name)}"
    return name if dataset.is_default else f"{name}/configs/{plain(dataset.config or 'none')}"


def _write_page(
    site: Site, title: str, where: Collected, made: Card, pages: Mapping[str | None, str]
) -> None:
    page = pages[made.dataset.config]
    root = "../" * (page.count("/") + 1)
    for name, data in made.samples.files.items():
        site.write(f"{page}/samples/{name}", data)
    described = ""
    if not made.problem:
        first = examples_file(made)
        if first is not None:
            site.write(f"{page}/{EXAMPLES}", first)
        described = croissant(where, made, has_examples=first is not None)
        if described:
            site.write(f"{page}/croissant.json", described)
    values = {
        "title": title,
        "has_croissant": bool(described),
        "schema_org": "" if made.problem else htmlsafe_json_dumps(schema_org(made)),
        "root": root,
        "where": where,
        "card": made,
        "configs": {name: f"{root}{one}/index.html" for name, one in pages.items()},
    }
    site.write(f"{page}/index.html", render("dataset.html", values))
