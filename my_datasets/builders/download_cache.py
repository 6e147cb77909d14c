"""Fetches files into TFDS's download cache, under the names that TFDS expects."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core.download import checksums, resource
from tensorflow_datasets.core.utils import tqdm_utils

from my_datasets.downloads import DownloadRetry, Expected, FetchedFile, exclusive_download, fetch

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
    """How the files of a dataset are fetched.

    Attributes:
      dataset: The dataset's name.
      records: The recorded checksums, by address.
      mirrors: Alternative addresses, by the address or the prefix that they replace: tried after
        it.
      preferred: The same, but tried before it.
      manual_dir: The folder of files that the user downloaded manually.
      at_once: How many files are fetched concurrently; None for the default.
      verify_ssl: Whether certificates are verified.
      force: Whether TFDS itself downloads everything again.
      patience: How long to wait for servers; None for the default.
    """

    dataset: str
    records: Mapping[str, checksums.UrlInfo]
    mirrors: Mapping[str, Sequence[str]]
    preferred: Mapping[str, Sequence[str]]
    manual_dir: epath.Path | None
    at_once: int | None = None
    verify_ssl: bool = True
    force: bool = False
    patience: DownloadRetry | None = None

    def sources(self, url: str) -> list[str]:
        """Returns the addresses to try for a file, in order."""
        found = [*_moved(url, self.preferred), url, *_moved(url, self.mirrors)]
        return list(dict.fromkeys(found))

    @property
    def fix(self) -> str:
        """Returns the command that accepts a changed file."""
        return f"accept it with my-datasets checksums {self.dataset} --update"


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
    """Fetches files concurrently, with a progress bar.

    Args:
      folders: The folder for each file, by address.
      plan: How they are fetched.
      put: Called with the address and the file when a file is complete, one call at a time.
      checked: Whether to verify the files against the recorded checksums.
      is_missing: Returns whether a file is still missing, as another process may have fetched it.

    Raises:
      DownloadError: A file could not be downloaded; completed downloads are kept.
      ChecksumError: A file differs from the recorded one.
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
                    fix=plan.fix,
                )
                with lock:
                    put(url, fetched)

        with ThreadPoolExecutor(min(plan.at_once or _AT_ONCE, len(folders))) as pool:
            try:
                for task in [pool.submit(get, url) for url in folders]:
                    task.result()
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
