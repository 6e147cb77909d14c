"""What stores have in common that are only read."""

from collections.abc import Sequence
from pathlib import Path

from my_datasets.storage.store import OnBytes, ignore_bytes, read_only


class ReadOnlyStore:
    """Refuses all that would write; see `Store`."""

    is_writable = False

    @property
    def url(self) -> str:
        """The store's address."""
        raise NotImplementedError

    def create(
        self,
        path: str,  # noqa: ARG002
        source: Path | bytes,  # noqa: ARG002
        sha256: str,  # noqa: ARG002
        on_bytes: OnBytes = ignore_bytes,  # noqa: ARG002
    ) -> None:
        raise read_only(self.url)

    def replace(self, path: str, data: bytes, tag: str | None) -> str:  # noqa: ARG002
        raise read_only(self.url)

    def move(self, source: str, target: str, last: Sequence[str]) -> None:  # noqa: ARG002
        raise read_only(self.url)

    def delete(self, path: str) -> None:  # noqa: ARG002
        raise read_only(self.url)
