"""A TFDS download manager whose files are fetched and verified by this package.

Files are put into TFDS's own cache, where TFDS would have put them, before TFDS looks for them; so
its cache, `--manual_dir` and its extraction work as usual. TFDS itself handles addresses other than
HTTP, and downloads that should be repeated or registered again. Small source files may ship in the
builder's own folder; these are verified too.
"""

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

import tensorflow_datasets as tfds
import wrapt
from etils import epath
from tensorflow_datasets.core.download import checksums, download_manager, resource
from tensorflow_datasets.core.utils import tqdm_utils

from my_datasets.downloads import DownloadRetry, Expected, FetchedFile, exclusive_download, fetch
from my_datasets.errors import ChecksumError, SourceError
from my_datasets.storage import addresses

# Files that are fetched concurrently.
_AT_ONCE = 8
# Google Drive asks for confirmation, which TFDS can handle.
_LEFT_TO_TFDS = ("https://drive.google.com/", "https://drive.usercontent.google.com/")

_Result = TypeVar("_Result")
# Lists and dicts of values, of any depth.
Nested: TypeAlias = "_Result | Sequence[Nested[_Result]] | Mapping[str, Nested[_Result]]"
Urls: TypeAlias = "Nested[str | tfds.download.Resource]"


@dataclasses.dataclass(frozen=True)
class DownloadPlan:
    """How the files of a dataset are fetched."""

    dataset: str  # the dataset's name
    records: Mapping[str, checksums.UrlInfo]  # the recorded checksums, by address
    # Alternatives, by the address or the prefix they replace: tried after it.
    mirrors: Mapping[str, Sequence[str]]
    preferred: Mapping[str, Sequence[str]]  # the same, but tried before it
    manual_dir: epath.Path | None  # the folder of files that the user downloaded
    at_once: int | None = None  # files fetched concurrently; None for the default
    verify_ssl: bool = True  # whether certificates are verified
    force: bool = False  # whether TFDS itself downloads everything again
    patience: DownloadRetry | None = None  # how long to wait for servers

    def sources(self, url: str) -> list[str]:
        """Returns the addresses to try for a file, in order."""
        found = [*_moved(url, self.preferred), url, *_moved(url, self.mirrors)]
        return list(dict.fromkeys(found))


def _moved(url: str, mirrors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    # The longest prefix is the most specific.
    for begin in sorted(mirrors, key=len, reverse=True):
        if url.startswith(begin):
            for other in mirrors[begin]:
                yield other + url[len(begin) :]


def is_ours(url: str) -> bool:
    """Returns whether this package fetches an address; TFDS fetches the others."""
    return url.startswith(("http://", "https://")) and not url.startswith(_LEFT_TO_TFDS)


def fetch_all(
    folders: Mapping[str, epath.Path],
    plan: DownloadPlan,
    put: Callable[[str, FetchedFile], None],
    *,
    checked: bool,
    is_missing: Callable[[str], bool] = lambda _: True,
) -> None:
    """Fetches files concurrently into their folders, with a progress bar.

    Args:
      folders: The folder for each file, by address.
      plan: How they are fetched.
      put: Called with the address and the file when a file is complete, one call at a time.
      checked: Whether to verify the files against the recorded checksums.
      is_missing: Returns whether a file is still missing, as another process may have fetched it.
    """
    if not folders:
        return
    records = plan.records if checked else {}
    sizes = [int(records[url].size) for url in folders if url in records]
    total = sum(sizes) if len(sizes) == len(folders) else None
    lock = threading.Lock()
    names = f"{len(folders)} files" if len(folders) > 1 else "1 file"
    with tqdm_utils.tqdm(
        total=total, desc=f"Downloading {names}", unit="B", unit_scale=True, leave=False
    ) as bar:

        def report(number: int) -> None:
            with lock:
                bar.update(number)

        def get(url: str) -> None:
            info = records.get(url)
            folder = Path(folders[url])
            with exclusive_download(url, folder):
                if not is_missing(url):
                    return  # another process fetched it while this one waited
                fetched = fetch(
                    url,
                    folder,
                    sources=plan.sources(url),
                    expected=Expected(int(info.size), info.checksum) if info else None,
                    verify_ssl=plan.verify_ssl,
                    patience=plan.patience,
                    on_bytes=report,
                    fix=f"accept it with my-datasets checksums {plan.dataset} --update",
                )
                with lock:
                    put(url, fetched)

        with ThreadPoolExecutor(min(plan.at_once or _AT_ONCE, len(folders))) as pool:
            try:
                list(pool.map(get, folders))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # lets running downloads finish
                raise


def into_cache(
    folder: epath.Path, url: str, fetched: FetchedFile, dataset: str, checksum: str | None
) -> tuple[checksums.UrlInfo, epath.Path]:
    """Moves a file to where TFDS's cache expects it; returns its record and its path.

    `checksum` is the recorded SHA-256, or None if the file is not recorded.
    """
    info = url_info(fetched)
    path = folder / resource.get_dl_fname(url, checksum)
    # A stale info file from an earlier download of the address would contradict this one.
    resource.get_info_path(path).unlink(missing_ok=True)
    fetched.path.replace(path)
    resource.write_info_file(
        url=url, path=path, dataset_name=dataset, original_fname=fetched.file_name, url_info=info
    )
    return info, path


def url_info(fetched: FetchedFile) -> checksums.UrlInfo:
    """Returns TFDS's record of a file."""
    size = tfds.core.utils.Size(fetched.size)
    return checksums.UrlInfo(size=size, checksum=fetched.sha256, filename=fetched.file_name)


def flat_resources(urls: Urls) -> Iterator[tfds.download.Resource]:
    """Yields the resources in nested lists and dicts of addresses and resources."""
    if isinstance(urls, Mapping):
        for value in urls.values():
            yield from flat_resources(value)
    elif isinstance(urls, (list, tuple)):
        for value in urls:
            yield from flat_resources(value)
    elif isinstance(urls, tfds.download.Resource):
        yield urls
    else:
        yield tfds.download.Resource(url=str(urls))


def map_addresses(
    function: Callable[[tfds.download.Resource], _Result], urls: Urls
) -> "Nested[_Result]":
    """Applies a function to each address; the results are nested as the addresses are."""
    if isinstance(urls, Mapping):
        return {key: map_addresses(function, value) for key, value in urls.items()}
    if isinstance(urls, (list, tuple)):
        return type(urls)([map_addresses(function, value) for value in urls])
    (item,) = flat_resources(urls)
    return function(item)


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
        missing = {item.url: item for item in flat_resources(url_or_urls) if self._is_missing(item)}
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
        directory = self._self_plan.manual_dir
        is_manual = directory and expected.filename and (directory / expected.filename).exists()
        if self.register_checksums or is_manual:
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
        top = epath.Path(self.download_dir) / plan.dataset
        folders = {
            item.url: top / item.relative_download_dir for item in flat_resources(url_or_urls)
        }
        paths: dict[str, epath.Path] = {}

        def put(url: str, fetched: FetchedFile) -> None:
            info, paths[url] = into_cache(folders[url], url, fetched, plan.dataset, fetched.sha256)
            self._self_found[url] = info

        others = sorted(url for url in folders if not is_ours(url))
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
