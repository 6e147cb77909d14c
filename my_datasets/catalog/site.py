"""The catalog as a static site: an index with filters, and a page for each dataset.

`Site` is the directory: each file is replaced in one step, and other people's files never are.
Filters by kind, license and size work without scripts, too.
"""

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jinja2.utils import htmlsafe_json_dumps

from my_datasets.catalog.dataset_page import (
    EXAMPLES,
    Card,
    card,
    croissant_description,
    examples_file,
    schema_org,
)
from my_datasets.catalog.pages import UnshowableError, render, static
from my_datasets.catalog.plots import shortened
from my_datasets.catalog.releases import CatalogContents, Dataset, VersionComparer
from my_datasets.core.progress import OnProgress, Progress, ignore
from my_datasets.errors import DataDirError
from my_datasets.metadata.dataset_info import MALFORMED
from my_datasets.storage import addresses
from my_datasets.storage.regular_files import write_whole

# The size classes, in bytes.
_SIZES = (
    (10 << 20, "up to 10 MiB"),
    (1 << 30, "up to 1 GiB"),
    (100 << 30, "up to 100 GiB"),
)
_LARGER = "larger than 100 GiB"
_UNKNOWN = "not declared"
# The maximum number of characters to search in.
_MOST_WORDS = 2000


@dataclass(frozen=True)
class Entry:
    """A dataset in the index: its default config, and the pages of its other configs by name."""

    card: Card
    page: str
    configs: Mapping[str, str]

    @property
    def licence(self) -> str:
        """Its license, for the filter."""
        return self.card.about.licence or _UNKNOWN

    @property
    def size(self) -> str:
        """Its size class, for the filter."""
        return next((name for most, name in _SIZES if self.card.bytes <= most), _LARGER)

    @property
    def features(self) -> str:
        """The names of its features, possibly cut off."""
        return shortened(", ".join(_unique(one.name for one in self.card.about.features)), 800)

    @property
    def classes(self) -> str:
        """The names of its first classes, possibly cut off."""
        labels = [one for one in self.card.about.features if one.class_names]
        parts = ", ".join(_unique(name for one in labels for name in one.class_names))
        is_all = all(one.classes == len(one.class_names) for one in labels)
        return shortened(parts if is_all else f"{parts}, …", _MOST_WORDS - len(self.features))

    @property
    def contents(self) -> str:
        """Its numbers of features and classes, in words."""
        features = len([one for one in self.card.about.features if one.name])
        classes = sum(one.classes or 0 for one in self.card.about.features)
        parts = [_counted(features, "feature", "features"), _counted(classes, "class", "classes")]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Facet:
    """A filter of datasets: its name in HTML, its title, and each value with its count."""

    name: str
    title: str
    values: tuple[tuple[str, int], ...]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {value: number for number, (value, _) in enumerate(self.values)}

    def numbers_of(self, entry: Entry) -> tuple[int, ...]:
        """Returns the numbers of a dataset's values."""
        return tuple(sorted(self._numbers[value] for value in _values(self.name, entry)))

    def class_of(self, entry: Entry) -> str:
        """Returns the CSS class of a dataset's values; it contains no data."""
        return "-".join([f"of-{self.name}", *map(str, self.numbers_of(entry))])


def facets(entries: Sequence[Entry]) -> list[Facet]:
    """Returns the filters."""

    def counted(name: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in entries:
            for value in _values(name, entry):
                found[value] = found.get(value, 0) + 1
        return found

    sizes = counted("size")
    in_order = [*(name for _, name in _SIZES), _LARGER]
    by_number = sorted(counted("licence").items(), key=lambda one: (-one[1], one[0]))
    return [
        Facet("kind", "Kind", tuple(sorted(counted("kind").items()))),
        Facet("licence", "Licence", tuple(by_number)),
        Facet("size", "Size", tuple((name, sizes[name]) for name in in_order if name in sizes)),
    ]


def facet_style(some: Sequence[Facet], entries: Sequence[Entry]) -> str:
    """Returns the CSS that makes filters work without scripts.

    If values of a filter are selected, it hides datasets with none of them. There is one rule for
    each combination of values that occurs.
    """
    rules = []
    for facet in some:
        for numbers, name in dict.fromkeys(
            (facet.numbers_of(entry), facet.class_of(entry)) for entry in entries
        ):
            own = ", ".join(f"#{facet.name}-{number}:checked" for number in numbers)
            rules.append(
                f'html:not(.has-script) .finder:has([data-facet="{facet.name}"]:checked)'
                f"{f':not(:has({own}))' if own else ''} .{name} {{ display: none; }}\n"
            )
    return "/* How filters work without scripts. */\n" + "".join(rules)


def _values(name: str, entry: Entry) -> Iterable[str]:
    if name == "kind":
        return _unique(entry.card.about.modalities)
    return [entry.licence if name == "licence" else entry.size]


def _unique(given: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys(filter(None, given))


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}" if count else ""


MARKER = "my-datasets-catalog.json"
_FORMAT = 1
_PLAIN = re.compile(r"[A-Za-z0-9_][\w+.-]{0,99}", re.ASCII)


class Site:
    """A static site that is being updated; readers find old and new pages, all complete.

    Attributes:
      options: Options to remember for the next update, by name.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Reads which files an earlier run has written.

        Raises:
          DataDirError: The directory holds something else, or cannot be written.
        """
        self._directory = addresses.local_path(directory, "The directory of the site")
        self._before, self.options = self._known()
        self._written: set[str] = set()

    def write(self, path: str, contents: str | bytes) -> None:
        """Writes a file, with text in UTF-8, unless its contents are unchanged.

        `path` is relative to the site, with `/`.

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
        marker = {"format": _FORMAT, "told": self.options, "files": sorted(files - {MARKER})}
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
    contents: CatalogContents,
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
      contents: The datasets.
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
    title = title or site.options.get("title") or "Datasets"
    address = address or site.options.get("address")
    site.options = {"title": title, **({"address": address} if address else {})}
    contents = replace(contents, origin=address) if address else contents
    site.begin()
    for name in _ASSETS:
        site.write(f"assets/{name}", static(name))
    entries: list[Entry] = []
    problems: dict[str, str] = {}
    done = 0
    for _, group in itertools.groupby(contents.datasets, key=lambda one: one.name):
        some = list(group)
        pages = {one.config: _page_of(one) for one in some}
        for one in some:
            made = card(contents, one, comparing, with_samples=with_samples)
            try:
                _write_page(site, title, contents, made, pages)
            except (UnshowableError, *MALFORMED) as error:
                # Invalid metadata.
                made = Card(one, one.shown, problem=f"{type(error).__name__}: {error}")
                _write_page(site, title, contents, made, pages)
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
            report(Progress(f"writing {made.name}", done, len(contents.datasets)))
    found = facets(entries)
    site.write("assets/facets.css", facet_style(found, entries))
    index = {"title": title, "root": "", "contents": contents, "entries": entries, "facets": found}
    site.write("index.html", render("index.html", index))
    site.finish()
    versions = sum(len(one.versions) for one in contents.datasets)
    return Rendered(len(contents.datasets), versions, problems)


def _page_of(dataset: Dataset) -> str:
    """Returns the folder of a dataset's page."""
    name = f"datasets/{plain(dataset.name)}"
    return name if dataset.is_default else f"{name}/configs/{plain(dataset.config or 'none')}"


def _write_page(
    site: Site, title: str, contents: CatalogContents, made: Card, pages: Mapping[str | None, str]
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
        described = croissant_description(contents, made, has_examples=first is not None)
        if described:
            site.write(f"{page}/croissant.json", described)
    values = {
        "title": title,
        "has_croissant": bool(described),
        "schema_org": "" if made.problem else htmlsafe_json_dumps(schema_org(made)),
        "root": root,
        "contents": contents,
        "card": made,
        "configs": {name: f"{root}{one}/index.html" for name, one in pages.items()},
    }
    site.write(f"{page}/index.html", render("dataset.html", values))
