"""The catalog as a static site: an index, and a page for each dataset.

`Site` is the directory: each file is replaced in one step, and other people's files never are.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jinja2.utils import htmlsafe_json_dumps

from my_datasets.catalog.releases import CatalogContents, Dataset, VersionComparer
from my_datasets.catalog.site.dataset_page import Card, card
from my_datasets.catalog.site.jsonld import EXAMPLES, croissant, examples_file, schema_org
from my_datasets.catalog.site.search_index import Entry, facets, style
from my_datasets.catalog.templating import UnshowableError, render, static
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.errors import DataDirError
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage import addresses
from my_datasets.storage.regular_files import write_whole

MARKER = "my-datasets-catalog.json"
_FORMAT = 1
_PLAIN = re.compile(r"[A-Za-z0-9_][\w+.-]{0,99}", re.ASCII)


class Site:
    """A static site that is being updated; readers find old and new pages, all complete.

    Attributes:
      told: Options to remember for the next update, by name.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Reads which files an earlier run has written.

        Raises:
          DataDirError: The directory holds something else, or cannot be written.
        """
        self._directory = addresses.local_path(directory, "The directory of the site")
        self._before, self.told = self._known()
        self._written: set[str] = set()

    def write(self, path: str, contents: str | bytes) -> None:
        """Writes a file unless its contents are unchanged.

        Args:
          path: Its path in the site, with `/`.
          contents: Its contents; text is encoded as UTF-8.

        Raises:
          DataDirError: The file cannot be written.
        """
        data = contents.encode("utf-8", "replace") if isinstance(contents, str) else contents
        target = self._directory / path
        self._written.add(path)
        try:
            if target.is_file() and target.read_bytes() == data:
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, data, fsync=False)
        except OSError as error:
            raise DataDirError(
                f"{target} cannot be written: {error.strerror}.",
                fix="name a writable directory with enough space",
            ) from error

    def begin(self) -> None:
        """Marks the directory as ours, before anything else is written."""
        self._mark(self._before)

    def finish(self) -> None:
        """Deletes files of earlier runs that are no longer part of the site."""
        obsolete = self._before - self._written
        for path in sorted(obsolete):
            target = self._directory / path
            target.unlink(missing_ok=True)
            for parent in target.parents:
                if parent == self._directory or not parent.is_dir() or any(parent.iterdir()):
                    break
                parent.rmdir()
        self._mark(self._written)

    def _mark(self, files: set[str]) -> None:
        marker = {"format": _FORMAT, "told": self.told, "files": sorted(files - {MARKER})}
        self.write(MARKER, json.dumps(marker, indent=0) + "\n")

    def _known(self) -> tuple[set[str], dict[str, str]]:
        """Returns the files and remembered options of an earlier run."""
        try:
            known = json.loads((self._directory / MARKER).read_text("utf-8"))
            options = {str(name): str(text) for name, text in known.get("told", {}).items()}
            return {one for one in known["files"] if _is_inside(one)}, options
        except (OSError, *MALFORMED):
            if self._directory.is_dir() and any(self._directory.iterdir()):
                raise DataDirError(
                    f"{self._directory} is not a catalog site.",
                    fix="name an empty directory, or one that does not exist",
                ) from None
            return set(), {}


def plain(name: str) -> str:
    """Returns a name that is safe in URLs and paths."""
    if _PLAIN.fullmatch(name) and not name.endswith(".") and ".." not in name:
        return name
    letters = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    return f"{letters or 'x'}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _is_inside(path: object) -> bool:
    return isinstance(path, str) and all(
        part not in ("", ".", "..") and "\\" not in part for part in path.split("/")
    )


_ASSETS = ("catalog.css", "catalog.js", "icon.svg")


@dataclass(frozen=True)
class Rendered:
    """A finished site: its numbers of datasets and versions, and datasets that cannot be shown."""

    datasets: int
    versions: int
    problems: Mapping[str, str]


def write(
    where: CatalogContents,
    directory: str | os.PathLike[str],
    *,
    title: str | None = None,
    address: str | None = None,
    comparing: VersionComparer | None = None,
    with_samples: bool = True,
    report: OnProgress = ignore,
) -> Rendered:
    """Generates or updates a site.

    Args:
      where: The datasets.
      directory: The output directory.
      title: The title of the site; None to keep it.
      address: The URL of the store to show on pages, if readers use a different one; None to keep
        it.
      comparing: Compares versions; None to show no changes.
      with_samples: Whether to read and show examples.
      report: Called after each page.

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
    done = 0
    for _, group in itertools.groupby(where.datasets, key=lambda one: one.name):
        some = list(group)
        pages = {one.config: _page_of(one) for one in some}
        for one in some:
            made = card(where, one, comparing, with_samples=with_samples)
            try:
                _write_page(site, title, where, made, pages)
            except (UnshowableError, *MALFORMED) as error:
                # Invalid metadata.
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
            done += 1
            report(Progress(f"writing {made.name}", done, len(where.datasets)))
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
    site: Site, title: str, where: CatalogContents, made: Card, pages: Mapping[str | None, str]
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
