"""Search in the index by words, kind, license and size; works without scripts, too."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from my_datasets.catalog.plots import shortened
from my_datasets.catalog.site.dataset_page import Card

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


def style(some: Sequence[Facet], entries: Sequence[Entry]) -> str:
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
