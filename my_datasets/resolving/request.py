"""A requested reference, and the exact version that the project's lock pins it to."""

from dataclasses import dataclass
from pathlib import Path

from my_datasets.core.reference import DatasetReference
from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving.lock import Lock


@dataclass(frozen=True)
class Request:
    """A reference as the user wrote it, with the lock that applies to it.

    Every entry point makes one of these and passes it on, so a reference means the same everywhere.

    Attributes:
      reference: The reference.
      lock: The project's lock; None if the project has no lock, or ignores it.
    """

    reference: DatasetReference
    lock: Lock | None = None

    @classmethod
    def of(cls, reference: str | DatasetReference, *, use_lock: bool = True) -> "Request":
        """Returns the request for a reference.

        Args:
          reference: For example `digits:1.*.*`.
          use_lock: Whether the project's lock applies.

        Raises:
          InvalidReferenceError: `reference` is malformed.
          LockError: The lock cannot be read.
        """
        return cls(DatasetReference.of(reference), Lock.find() if use_lock else None)

    @property
    def exact(self) -> DatasetReference:
        """The exact version if the reference is locked, else the reference itself."""
        return self.lock.exact(self.reference) if self.lock is not None else self.reference

    @property
    def is_locked(self) -> bool:
        """Whether the lock has an entry for the reference."""
        return self.lock is not None and str(self.reference) in self.lock.datasets

    @property
    def locked_by(self) -> Path | None:
        """The lock file, if it makes the reference mean something else than it says."""
        return self.lock.path if self.lock is not None and self.exact != self.reference else None

    def check(self, version: Path | VersionMetadata, *, has_shards: bool) -> None:
        """Checks that a version matches the lock; see `Lock.check`.

        Raises:
          LockError: It does not.
          CorruptShardError: A record index does not match its shard.
          IncompleteVersionError: Its manifest cannot be read.
        """
        if self.lock is not None:
            self.lock.check(self.reference, version, has_shards=has_shards)

    def check_digest(self, digest: str, place: str) -> None:
        """Checks the digest that a store reports for a release; see `Lock.check_digest`.

        Raises:
          LockError: It does not match the lock.
        """
        if self.lock is not None:
            self.lock.check_digest(self.reference, digest, place)
