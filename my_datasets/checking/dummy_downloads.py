"""A download manager that returns dummy data while a builder is checked."""

from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

from etils import epath
from tensorflow_datasets.core.download import checksums, extractor, resource

from my_datasets.builders.download_cache import Nested, Urls, map_addresses
from my_datasets.checking.target import CheckTarget
from my_datasets.core.issue import Issue, Severity


class NoDummyDataError(Exception):
    """There is no dummy data, so the check cannot continue; the issue is already recorded."""


class DummyDownloadManager:  # builders that use unsupported methods get errors with this class name
    """Returns dummy data instead of downloads, and reports downloads without recorded checksums."""

    def __init__(
        self, subject: CheckTarget, records: Mapping[str, checksums.UrlInfo], issues: list[Issue]
    ) -> None:
        """Adds issues to the list, for what the builder requests but `records` lacks."""
        self._subject = subject
        self._records = records
        self._issues = issues
        self._dummy = epath.Path(subject.dummy_data)

    @property
    def manual_dir(self) -> epath.Path:
        """The dummy data directory."""
        return self._existing(self._dummy)

    def download(self, urls: Urls) -> "Nested[epath.Path]":
        """Returns a dummy file for each URL."""
        return map_addresses(self._file, urls)

    def download_and_extract(self, urls: Urls) -> "Nested[epath.Path]":
        """Returns the dummy data directory for each URL."""

        def extracted(item: resource.Resource) -> epath.Path:
            self._recorded(item.url)
            return self._existing(self._dummy)

        return map_addresses(extracted, urls)

    def extract(self, _paths: object) -> epath.Path:
        """Returns the dummy data directory."""
        return self._existing(self._dummy)

    def download_kaggle_data(self, _name: str) -> epath.Path:
        """Returns the dummy data directory."""
        return self._existing(self._dummy)

    def iter_archive(self, path: epath.PathLike) -> Iterator[tuple[str, BinaryIO]]:
        """Returns the same as TFDS's own method."""
        method = resource.guess_extract_method(str(path))
        files: Iterator[tuple[str, BinaryIO]] = extractor.iter_archive(path, method)
        return files

    def embedded_file(self, real: Callable[[str], epath.Path]) -> Callable[[str], epath.Path]:
        """Returns a function that returns dummy files instead of embedded ones."""

        def found(name: str) -> epath.Path:
            path = self._dummy / name
            return path if path.exists() else real(name)

        return found

    def _recorded(self, url: str) -> checksums.UrlInfo | None:
        info = self._records.get(url)
        if info is None:
            self._issues.append(
                Issue(
                    "checksum-missing",
                    self._subject.checksums.name,
                    f"The checksum of {url} is not recorded.",
                    f"my-datasets checksums {self._subject.name} --update",
                )
            )
        return info

    def _file(self, item: resource.Resource) -> epath.Path:
        info = self._recorded(item.url)
        names = [info.filename] if info is not None and info.filename else []
        names.append(item.url.partition("?")[0].rstrip("/").rpartition("/")[2])
        for name in names:
            if (self._dummy / name).exists():
                return self._dummy / name
        return self._existing(self._dummy / names[0])

    def _existing(self, path: epath.Path) -> epath.Path:
        if not path.exists():
            self._issues.append(
                Issue(
                    "dummy-data",
                    str(path),
                    "There is no dummy data for the builder's downloads.",
                    "put a few examples there, in the source's own layout; without them, "
                    "examples are not checked",
                    severity=Severity.WARNING,
                )
            )
            raise NoDummyDataError
        return path
