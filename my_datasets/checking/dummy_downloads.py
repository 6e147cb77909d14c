"""A download manager that returns dummy data while a builder is checked."""

from collections.abc import Mapping
from typing import Any

from etils import epath
from tensorflow_datasets.core.download import checksums, extractor, resource

from my_datasets.builders.download_cache import map_addresses
from my_datasets.checking.target import CheckTarget
from my_datasets.core.issue import Issue, Severity


class NoDummyDataError(Exception):
    """There is no dummy data, so the check cannot continue; the issue is already recorded."""


class DummyDownloadManager:  # builders that use unsupported methods get errors with this class name
    """Returns dummy data instead of downloads, and reports downloads without recorded checksums."""

    def __init__(
        self, subject: CheckTarget, records: Mapping[str, checksums.UrlInfo], issues: list[Issue]
    ) -> None:
        """Creates a manager without any downloads.

        Args:
          subject: The builder that requests files.
          records: The recorded checksums of its downloads.
          issues: The list to which issues are added.
        """
        self._subject = subject
        self._records = records
        self._issues = issues
        self._dummy = epath.Path(subject.dummy_data)

    @property
    def manual_dir(self) -> Any:
        """The dummy data directory."""
        return self._there(self._dummy)

    def download(self, urls: Any) -> Any:
        """Returns a dummy file for each URL."""
        return map_addresses(self._file, urls)

    def download_and_extract(self, urls: Any) -> Any:
        """Returns the dummy data directory for each URL."""

        def extracted(item: Any) -> Any:
            self._recorded(item.url)
            return self._there(self._dummy)

        return map_addresses(extracted, urls)

    def extract(self, _paths: Any) -> Any:
        """Returns the dummy data directory."""
        return self._there(self._dummy)

    def download_kaggle_data(self, _name: str) -> Any:
        """Returns the dummy data directory."""
        return self._there(self._dummy)

    def iter_archive(self, path: Any) -> Any:
        """Returns the same as TFDS's own method."""
        method = resource.guess_extract_method(str(path))
        return extractor.iter_archive(path, method)

    def embedded_file(self, real: Any) -> Any:
        """Returns a function that returns dummy files instead of embedded ones."""

        def found(name: str) -> Any:
            path = self._dummy / name
            return path if path.exists() else real(name)

        return found

    def _recorded(self, url: str) -> Any:
        info = self._records.get(url)
        if info is None:
            self._issues.append(
                Issue(
                    "checksum-missing",
                    self._subject.checksums.name,
                    f"The download {url} is not recorded.",
                    f"my-datasets checksums {self._subject.name} --update",
                )
            )
        return info

    def _file(self, item: Any) -> Any:
        info = self._recorded(item.url)
        names = [info.filename] if info is not None and info.filename else []
        names.append(item.url.partition("?")[0].rstrip("/").rpartition("/")[2])
        for name in names:
            if (self._dummy / name).exists():
                return self._dummy / name
        return self._there(self._dummy / names[0])

    def _there(self, path: Any) -> Any:
        if not path.exists():
            self._issues.append(
                Issue(
                    "dummy-data",
                    str(path),
                    "There are no dummy data for what the builder downloads.",
                    "put a few examples there, in the source's own layout; without them the "
                    "examples are not looked at",
                    severity=Severity.WARNING,
                )
            )
            raise NoDummyDataError
        return path
