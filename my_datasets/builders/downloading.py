"""TFDS's download manager, with files fetched by this package.

Files are put into TFDS's own cache, as TFDS would have put them there, before TFDS looks for
them; so its cache, `--manual_dir` and its extraction work as ever. What is no HTTP address, and
downloads that TFDS is told to repeat or to register anew, are left to TFDS.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
import wrapt
from etils import epath
from tensorflow_datasets.core.download import checksums, download_manager, resource
from tensorflow_datasets.core.utils import tqdm_utils

from my_datasets.core import layout
from my_datasets.downloads.diagnosis import Expected
from my_datasets.downloads.fetching import Fetched, Patience, alone, fetch
from my_datasets.errors import ChecksumError, SourceError, explain

# Files that are fetched at the same time.
_AT_ONCE = 8
_BY_TFDS = tfds.download.DownloadManager.download
# Google's drive asks for a consent, which TFDS knows how to give.
_LEFT_TO_TFDS = ("https://drive.google.com/", "https://drive.usercontent.google.com/")


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the files of a dataset are fetched.

    Attributes:
      dataset: Its name.
      records: What is recorded of each address.
      mirrors: Other addresses, by those that they stand for, or by what those begin with: tried
        after them.
      preferred: The same, tried before them.
      manual_dir: Where files lie that the user has got by hand.
      at_once: Files that are fetched at the same time; None for the default.
      verify_ssl: Whether certificates are verified.
      force: Whether TFDS is to download everything again, by itself.
      patience: How long servers are given; None for the default.
    """

    dataset: str
    records: Mapping[str, checksums.UrlInfo]
    mirrors: Mapping[str, Sequence[str]]
    preferred: Mapping[str, Sequence[str]]
    manual_dir: epath.Path | None
    at_once: int | None = None
    verify_ssl: bool = True
    force: bool = False
    patience: Patience | None = None

    def sources(self, url: str) -> list[str]:
        """Returns the addresses to ask for a file, in the order in which they are asked."""
        found = [*_moved(url, self.preferred), url, *_moved(url, self.mirrors)]
        return list(dict.fromkeys(found))

    @property
    def mend(self) -> str:
        """Returns the command that accepts another file."""
        return f"accept it with my-datasets checksums {self.dataset} --update"


def _moved(url: str, mirrors: Mapping[str, Sequence[str]]) -> Iterator[str]:
    # The longest beginning says most.
    for begin in sorted(mirrors, key=len, reverse=True):
        if url.startswith(begin):
            for other in mirrors[begin]:
                yield other + url[len(begin) :]


class DownloadManager(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A TFDS download manager whose files this package fetches."""

    def __init__(self, wrapped: tfds.download.DownloadManager, plan: Plan) -> None:
        """Wraps TFDS's.

        Args:
          wrapped: TFDS's manager, which keeps the cache, and extracts.
          plan: How files are fetched.
        """
        super().__init__(wrapped)
        self._self_plan = plan

    @property
    def plan(self) -> Plan:
        """Returns how files are fetched."""
        return self._self_plan

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Lets Beam send it to its workers."""
        return type(self), (self.__wrapped__, self._self_plan)

    def download(self, url_or_urls: Any) -> Any:
        """Downloads files, as TFDS's `download` does, and returns their paths.

        Args:
          url_or_urls: An address, a `tfds.download.Resource`, or lists and dicts of them.

        Raises:
          DownloadError: A file could not be got.
          ChecksumError: A file is another one than was recorded.
        """
        self._fetch_missing(url_or_urls)
        with _checksums_explained():
            return self.__wrapped__.download(url_or_urls)

    def download_and_extract(self, url_or_urls: Any) -> Any:
        """Downloads and extracts files, as TFDS's `download_and_extract` does.

        Args:
          url_or_urls: An address, a `tfds.download.Resource`, or lists and dicts of them.

        Raises:
          DownloadError: A file could not be got.
          ChecksumError: A file is another one than was recorded.
        """
        self._fetch_missing(url_or_urls)
        with _checksums_explained():
            return self.__wrapped__.download_and_extract(url_or_urls)

    def _fetch_missing(self, url_or_urls: Any) -> None:
        if type(self.__wrapped__).download is not _BY_TFDS:
            return  # a test, or a subclass, gets files in its own way
        # By its address: twice the same is one file.
        wanted = {item.url: item for item in leaves(url_or_urls)}
        missing = {url: item for url, item in wanted.items() if self._is_missing(item)}
        plan = self._self_plan

        def put(url: str, fetched: Fetched) -> None:
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
        """Returns whether a file is to be fetched, by the rules by which TFDS looks for it."""
        expected = self._self_plan.records.get(item.url)
        by_tfds = self._self_plan.force or layout.is_remote(self.download_dir)
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
        """Returns where TFDS looks for a file: in the dataset's folder, and where it once was."""
        top, below = epath.Path(self.download_dir), item.relative_download_dir
        return [top / self._self_plan.dataset / below, top / below]


class ChecksumRecorder(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A TFDS download manager that fetches each file anew, and notes what it is."""

    def __init__(self, wrapped: tfds.download.DownloadManager, plan: Plan) -> None:
        """Wraps TFDS's, which only extracts.

        Args:
          wrapped: TFDS's manager.
          plan: How files are fetched.
        """
        super().__init__(wrapped)
        self._self_plan = plan
        self._self_found: dict[str, checksums.UrlInfo] = {}

    @property
    def found(self) -> dict[str, checksums.UrlInfo]:
        """Returns what each file is that was asked for so far, by its address."""
        return self._self_found

    def download(self, url_or_urls: Any) -> Any:
        """Downloads files, and returns their paths, nested as the addresses are."""
        plan = self._self_plan
        wanted = {item.url: item for item in leaves(url_or_urls)}
        top = epath.Path(self.download_dir) / plan.dataset
        folders = {url: top / item.relative_download_dir for url, item in wanted.items()}
        paths: dict[str, epath.Path] = {}

        def put(url: str, fetched: Fetched) -> None:
            info, paths[url] = into_cache(folders[url], url, fetched, plan.dataset, fetched.sha256)
            self._self_found[url] = info

        others = sorted(url for url in wanted if not is_ours(url))
        if others:
            raise SourceError(
                explain(
                    f"{others[0]} is no HTTP address, so nothing can be recorded of it here.",
                    mend=f"tfds build {plan.dataset} --register_checksums",
                )
            )
        fetch_all(folders, plan, put, checked=False)
        return mapped(lambda item: paths[item.url], url_or_urls)

    def download_and_extract(self, url_or_urls: Any) -> Any:
        """Downloads and extracts files, and returns the paths of what was in them."""
        paths = {item.url: self.download(item) for item in leaves(url_or_urls)}

        def extracted(item: tfds.download.Resource) -> Any:
            item.path = paths[item.url]
            return self.__wrapped__.extract(item)

        return mapped(extracted, url_or_urls)


def is_ours(url: str) -> bool:
    """Returns whether this package fetches such an address; TFDS does others."""
    return url.startswith(("http://", "https://")) and not url.startswith(_LEFT_TO_TFDS)


def fetch_all(
    folders: Mapping[str, epath.Path],
    plan: Plan,
    put: Callable[[str, Fetched], None],
    *,
    checked: bool,
    is_missing: Callable[[str], bool] = lambda _: True,
) -> None:
    """Fetches files, some at the same time, with a progress bar.

    Args:
      folders: Where each address's file is put, by the address.
      plan: How they are fetched.
      put: Called with the address and the file as one is whole, one call at a time.
      checked: Whether they are to be what was recorded of them.
      is_missing: Returns whether nobody else has put an address's file there meanwhile.

    Raises:
      DownloadError: A file could not be got; those that were are kept.
      ChecksumError: A file is another one than was recorded.
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

        def told(number: int) -> None:
            with lock:
                bar.update(number)

        def get(url: str) -> None:
            info = records.get(url)
            folder = Path(folders[url])
            with alone(url, folder):
                if not is_missing(url):
                    return  # another process got it while this one waited
                fetched = fetch(
                    url,
                    folder,
                    sources=plan.sources(url),
                    expected=Expected(int(info.size), info.checksum) if info else None,
                    verify_ssl=plan.verify_ssl,
                    patience=plan.patience,
                    on_bytes=told,
                    mend=plan.mend,
                )
                with lock:
                    put(url, fetched)

        with ThreadPoolExecutor(min(plan.at_once or _AT_ONCE, len(folders))) as pool:
            try:
                for task in [pool.submit(get, url) for url in folders]:
                    task.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # those under way come to their end
                raise


def into_cache(
    folder: epath.Path, url: str, fetched: Fetched, dataset: str, checksum: str | None
) -> tuple[checksums.UrlInfo, epath.Path]:
    """Moves a file to where TFDS's cache expects it; returns what it is, and where.

    Args:
      folder: The folder of the cache.
      url: Its address.
      fetched: The file.
      dataset: For whom it was fetched.
      checksum: The file's SHA-256 if it is recorded, None if it is not.
    """
    size = tfds.core.utils.Size(fetched.size)
    info = checksums.UrlInfo(size=size, checksum=fetched.sha256, filename=fetched.file_name)
    path = folder / resource.get_dl_fname(url, checksum)
    # What an earlier file of that address left would contradict this one.
    resource.get_info_path(path).unlink(missing_ok=True)
    fetched.path.replace(path)
    resource.write_info_file(
        url=url, path=path, dataset_name=dataset, original_fname=fetched.file_name, url_info=info
    )
    return info, path


def leaves(urls: Any) -> Iterator[tfds.download.Resource]:
    """Yields the resources in nested lists and dicts of addresses and resources."""
    if isinstance(urls, Mapping):
        for value in urls.values():
            yield from leaves(value)
    elif isinstance(urls, (list, tuple)):
        for value in urls:
            yield from leaves(value)
    elif isinstance(urls, tfds.download.Resource):
        yield urls
    else:
        yield tfds.download.Resource(url=str(urls))


def mapped(function: Callable[[tfds.download.Resource], Any], urls: Any) -> Any:
    """Returns what a function makes of each address, nested as the addresses are."""
    if isinstance(urls, Mapping):
        return {key: mapped(function, value) for key, value in urls.items()}
    if isinstance(urls, (list, tuple)):
        return type(urls)([mapped(function, value) for value in urls])
    (item,) = leaves(urls)
    return function(item)


@contextlib.contextmanager
def _checksums_explained() -> Iterator[None]:
    """Explains what TFDS finds wrong with files that were got by hand, or by itself."""
    try:
        yield
    except download_manager.NonMatchingChecksumError as error:
        raise ChecksumError(
            explain(
                "A file is another one than was recorded.",
                *str(error).splitlines()[:3],
                mend="take the recorded edition; or record this one with "
                "my-datasets checksums NAME --update, and raise the dataset's VERSION",
            )
        ) from error
