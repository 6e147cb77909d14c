"""A TFDS download manager whose files are fetched and verified by this package.

Files are put into TFDS's own cache, where TFDS would have put them, before TFDS looks for them; so
its cache, `--manual_dir` and its extraction work as usual. TFDS itself handles addresses other than
HTTP, and downloads that should be repeated or registered again. Small source files may ship in the
builder's own folder; these are verified too.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow_datasets as tfds
import wrapt
from etils import epath
from tensorflow_datasets.core.download import checksums, download_manager, resource

from my_datasets.builders.download_cache import (
    DownloadPlan,
    Nested,
    Urls,
    fetch_all,
    flat_resources,
    into_cache,
    is_ours,
    map_addresses,
)
from my_datasets.downloads import FetchedFile
from my_datasets.errors import ChecksumError, SourceError
from my_datasets.storage import addresses

_BY_TFDS = tfds.download.DownloadManager.download


def verify_embedded(path: Path, *, size: int, sha256: str, recorded_in: str) -> None:
    """Checks a source file against its size in bytes and SHA-256, as `recorded_in` a file.

    Raises:
      SourceError: The file is missing.
      ChecksumError: The size or the SHA-256 differs.
    """
    if not path.is_file():
        raise SourceError(
            f"The source file {path} is missing.",
            f"It is recorded in {recorded_in} and ships with the builder.",
            fix="reinstall the package that contains the builder",
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    found_size = path.stat().st_size
    if (found_size, found) != (size, sha256):
        raise ChecksumError(
            f"The source file {path} has changed.",
            f"Expected by {recorded_in}: {size} bytes, SHA-256 {sha256}",
            f"Found: {found_size} bytes, SHA-256 {found}",
            fix="if it is damaged, reinstall the package that contains the builder; if it is "
            "another edition, record it and raise the dataset's VERSION",
        )


class DownloadManager(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A TFDS download manager whose files this package fetches."""

    def __init__(self, wrapped: tfds.download.DownloadManager, plan: DownloadPlan) -> None:
        super().__init__(wrapped)
        self._self_plan = plan

    @property
    def plan(self) -> DownloadPlan:
        """How files are fetched."""
        return self._self_plan

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """Supports pickling, so that Beam can send it to its workers."""
        return type(self), (self.__wrapped__, self._self_plan)

    def download(self, url_or_urls: Urls) -> "Nested[epath.Path]":
        """Downloads files, as TFDS's `download` does, and returns their paths.

        Raises:
          DownloadError: A file could not be downloaded.
          ChecksumError: A file differs from the recorded one.
        """
        self._fetch_missing(url_or_urls)
        with _checksums_explained():
            return self.__wrapped__.download(url_or_urls)

    def download_and_extract(self, url_or_urls: Urls) -> "Nested[epath.Path]":
        """Downloads and extracts files, as TFDS does; raises what `download` raises."""
        self._fetch_missing(url_or_urls)
        with _checksums_explained():
            return self.__wrapped__.download_and_extract(url_or_urls)

    def _fetch_missing(self, url_or_urls: Urls) -> None:
        if type(self.__wrapped__).download is not _BY_TFDS:
            return  # a test or a subclass downloads in its own way
        # Keyed by address: duplicates are downloaded once.
        wanted = {item.url: item for item in flat_resources(url_or_urls)}
        missing = {url: item for url, item in wanted.items() if self._is_missing(item)}
        plan = self._self_plan

        def put(url: str, fetched: FetchedFile) -> None:
            checksum = fetched.sha256 if url in plan.records else None
            into_cache(self._folders(missing[url])[0], url, fetched, plan.dataset, checksum)

        folders = {url: self._folders(item)[0] for url, item in missing.items()}
        fetch_all(
            folders,
            plan,
            put,
            checked=True,
            is_missing=lambda url: self._is_missing(missing[url]),
        )

    def _is_missing(self, item: tfds.download.Resource) -> bool:
        """Returns whether a file must be fetched, by the same rules by which TFDS looks for it."""
        expected = self._self_plan.records.get(item.url)
        by_tfds = self._self_plan.force or addresses.is_remote(self.download_dir)
        if by_tfds or not is_ours(item.url):
            return False
        if expected is None:
            cached = [folder / resource.get_dl_fname(item.url) for folder in self._folders(item)]
            return not any(map(resource.is_locally_cached, cached))
        if self.register_checksums or self._is_got_by_hand(expected):
            return False
        for folder in self._folders(item):
            named = folder / resource.get_dl_fname(item.url, expected.checksum)
            unnamed = folder / resource.get_dl_fname(item.url)
            if resource.is_locally_cached(named):
                return False
            if resource.is_locally_cached(unnamed):
                info = resource.read_info_file(unnamed).get("url_info", {})
                if (info.get("checksum"), info.get("size")) == (expected.checksum, expected.size):
                    return False
        return True

    def _is_got_by_hand(self, expected: checksums.UrlInfo) -> bool:
        directory = self._self_plan.manual_dir
        if directory is None or not expected.filename:
            return False
        return bool((directory / expected.filename).exists())

    def _folders(self, item: tfds.download.Resource) -> list[epath.Path]:
        """Returns where TFDS looks for a file: the dataset's folder and the legacy location."""
        top, below = epath.Path(self.download_dir), item.relative_download_dir
        return [top / self._self_plan.dataset / below, top / below]


class ChecksumRecorder(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A TFDS download manager that downloads each file again and records its checksum."""

    def __init__(self, wrapped: tfds.download.DownloadManager, plan: DownloadPlan) -> None:
        super().__init__(wrapped)
        self._self_plan = plan
        self._self_found: dict[str, checksums.UrlInfo] = {}

    @property
    def found(self) -> dict[str, checksums.UrlInfo]:
        """The checksums of the files downloaded so far, by address."""
        return self._self_found

    def download(self, url_or_urls: Urls) -> "Nested[epath.Path]":
        """Downloads files, and returns their paths, nested as the addresses are."""
        plan = self._self_plan
        wanted = {item.url: item for item in flat_resources(url_or_urls)}
        top = epath.Path(self.download_dir) / plan.dataset
        folders = {url: top / item.relative_download_dir for url, item in wanted.items()}
        paths: dict[str, epath.Path] = {}

        def put(url: str, fetched: FetchedFile) -> None:
            info, paths[url] = into_cache(folders[url], url, fetched, plan.dataset, fetched.sha256)
            self._self_found[url] = info

        others = sorted(url for url in wanted if not is_ours(url))
        if others:
            raise SourceError(
                f"{others[0]} is not an HTTP address, so its checksum cannot be recorded here.",
                fix=f"tfds build {plan.dataset} --register_checksums",
            )
        fetch_all(folders, plan, put, checked=False)
        return map_addresses(lambda item: paths[item.url], url_or_urls)

    def download_and_extract(self, url_or_urls: Urls) -> "Nested[epath.Path]":
        """Downloads and extracts files, and returns the paths of the extracted contents."""
        paths = {item.url: self.download(item) for item in flat_resources(url_or_urls)}

        def extracted(item: tfds.download.Resource) -> epath.Path:
            item.path = paths[item.url]
            return self.__wrapped__.extract(item)

        return map_addresses(extracted, url_or_urls)


@contextlib.contextmanager
def _checksums_explained() -> Iterator[None]:
    """Explains TFDS's checksum errors for files fetched by TFDS or downloaded manually."""
    try:
        yield
    except download_manager.NonMatchingChecksumError as error:
        raise ChecksumError(
            "A file differs from the recorded one.",
            *str(error).splitlines()[:3],
            fix="use the recorded edition; or record this one with "
            "my-datasets checksums NAME --update, and raise the dataset's VERSION",
        ) from error
