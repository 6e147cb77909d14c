"""Which keys are trusted for a store, and who signed a pulled version.

Trusted keys are configured once: in the project's lock, or in the user's `settings.toml`:

    [[trusted_keys]]
    key = "ssh-ed25519 AAAA... alice@example.org"
    store = "gs://our-bucket/datasets"  # optional: applies to every store if left out
    store_id = "6f1c..."                # optional: any store at that address if left out

A lock with keys for a store overrides the settings; entries for the store override those for every
store.
"""

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from my_datasets.core.issue import Issue
from my_datasets.errors import (
    CorruptReleaseError,
    DataDirError,
    IncompleteVersionError,
    InvalidOptionError,
    SignatureError,
    problem_of,
)
from my_datasets.metadata import sidecars
from my_datasets.metadata.dataset_info import MALFORMED, Declared
from my_datasets.metadata.manifest import FILE_NAME as MANIFEST
from my_datasets.metadata.manifest import Manifest
from my_datasets.metadata.recorded_files import other_files
from my_datasets.publishing.model import record
from my_datasets.publishing.model.record import REWRITTEN, Record, ReleasedFile, is_part_made_here
from my_datasets.publishing.model.rollback_state import RollbackState
from my_datasets.publishing.model.signed_json import Signature, Trusts
from my_datasets.publishing.model.store_layout import Release, claim
from my_datasets.resolving.lock import Lock, TrustedKey, trusted_key
from my_datasets.storage.backends import open_store
from my_datasets.storage.json_files import convert_json, read_json
from my_datasets.storage.regular_files import read_regular, sha256_of, write_whole
from my_datasets.storage.store import Store
from my_datasets.storage.user_folders import settings_folder

# Purpose of the signatures of a release.
RELEASE_PURPOSE = "my-datasets-release"
SETTINGS = "settings.toml"
_ANEW = "pull the release again"
_FORMAT = 1
_NOT_OF_THE_RELEASE = frozenset({record.FILE_NAME, record.SIGNATURES, "quarantine.jsonl"})


@dataclass(frozen=True)
class StoreTrust:
    """The trusted keys for a store, and the ids that the store may have; empty for any."""

    keys: Trusts
    store_ids: frozenset[str]


def configured(url: str) -> StoreTrust | None:
    """Returns the keys that the lock or the user's settings trust for a store; None without any.

    Raises:
      LockError, InvalidOptionError: The lock or the settings cannot be read.
      SignatureError: A key in them is invalid.
    """
    lock = Lock.find()
    if lock is not None and (found := _of_store(lock.trusted_keys, url, lock.path)):
        return found
    try:
        path = settings_folder(SETTINGS)
    except DataDirError:
        return None  # a user without a home has no settings
    return _of_store(_in_settings(path), url, path)


def keys_for(store: str | os.PathLike[str] | Store) -> Trusts | None:
    """Returns the keys that are configured for a store; None if there are none."""
    found = configured(open_store(store).url)
    return found.keys if found is not None else None


def _of_store(entries: Iterable[TrustedKey], url: str, source: Path) -> StoreTrust | None:
    named, general = [], []
    for one in entries:
        if not one.store:
            general.append(one)
        elif _address(one.store, source) == url.rstrip("/"):
            named.append(one)
    used = named or general
    if not used:
        return None
    # Imported late: only signatures need `cryptography`.
    from my_datasets.publishing.model.signing import TrustedKeys

    keys = TrustedKeys.of([one.key for one in used], str(source))
    return StoreTrust(keys, frozenset(one.store_id for one in used if one.store_id))


def _address(store: str, source: Path) -> str:
    """Returns the address of a store; relative directories are relative to the file."""
    if "://" in store:
        return store.rstrip("/")
    return os.path.abspath(source.absolute().parent / Path(store).expanduser())


def _in_settings(path: Path) -> list[TrustedKey]:
    try:
        whole = tomllib.loads(path.read_text("utf-8"))
        return [trusted_key(one) for one in whole.get("trusted_keys", [])]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, *MALFORMED) as error:
        raise InvalidOptionError(
            f"{path} cannot be read.",
            f"Found: {type(error).__name__}: {error}",
            "Expected: [[trusted_keys]] with key, and optionally store and store_id",
            fix="correct it, or delete it",
        ) from error


def keep_signatures(version_dir: Path, wanted: Record, release: Release, url: str) -> None:
    """Writes the signatures of a release beside its record, to check them offline.

    Writes nothing if the directory has no such record. `url` is the store's address, for display.
    """
    path = version_dir / record.SIGNATURES
    if not release.signatures or not wanted.read_from(version_dir):
        return
    whole = {
        "format": _FORMAT, "store": url, "signatures": [asdict(one) for one in release.signatures]
    }  # fmt: skip
    data = (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode("ascii")
    with contextlib.suppress(OSError):
        if path.is_file() and read_regular(path, len(data)) == data:
            return
    with contextlib.suppress(OSError):  # a read-only directory is usable without them
        write_whole(path, data)


@dataclass(frozen=True)
class SignatureCheck:
    """The trusted key that signed a version, None if there are issues; and the issues."""

    signed_by: str | None
    issues: tuple[Issue, ...] = ()


def check_signed(
    version_dir: Path, keys: Trusts, memory: RollbackState | None = None, url: str | None = None
) -> SignatureCheck:
    """Checks offline that a trusted key signed the release in a directory.

    The directory must have the signed name, config and version. Its files are hashed, except shards
    that this machine has verified and that have not changed since. Keys that `keys` added in the
    store are trusted, and revoked keys are not, as far as `memory` has seen the changes. Without
    `url`, the store is the one recorded in the version.
    """
    path = version_dir / record.FILE_NAME
    try:
        data = read_regular(path, record.MOST_BYTES)
        mine = Record.parse(data, str(path))
        said, signatures = _signatures(version_dir / record.SIGNATURES)
    except FileNotFoundError as error:
        name = Path(str(error.filename)).name
        return SignatureCheck(None, (_issue("not-signed", name, "There is no signed record."),))
    except (CorruptReleaseError, OSError, *MALFORMED) as error:
        why = problem_of(error)
        return SignatureCheck(None, (_issue("not-signed", path.name, "It cannot be read.", why),))
    seen = memory or RollbackState()
    keys, revoked = seen.keys_after_changes(url or said, keys), seen.revoked()
    valid = tuple(one for one in signatures if one.key not in revoked)
    name = f"{mine.name}:{mine.key}"
    message = claim(mine.name, mine.key, hashlib.sha256(data).hexdigest())
    try:
        by = keys.check(RELEASE_PURPOSE, message, valid, f"The release {name} in {version_dir}")
    except SignatureError as error:
        found = " ".join(error.facts)
        if len(valid) < len(signatures):
            found += "; revoked keys are not trusted"
        issue = _issue("wrong-signature", record.SIGNATURES, error.problem, found)
        return SignatureCheck(None, (issue,))
    issues = (*_other_name(version_dir, mine), *_other_files(version_dir, mine))
    return SignatureCheck(None if issues else by, issues)


def require_signed(
    version_dir: Path, keys: Trusts, memory: RollbackState | None = None, url: str | None = None
) -> None:
    """Raises a `SignatureError` unless a trusted key signed a version; see `check_signed`."""
    issues = check_signed(version_dir, keys, memory, url).issues
    if issues:
        first = issues[0]
        raise SignatureError(
            f"{version_dir} is not a release signed by a trusted key.",
            f"{first.node}: {first.problem}",
            f"Found: {first.found}" if first.found else "",
            fix=first.fix,
        )


def _signatures(path: Path) -> tuple[str, tuple[Signature, ...]]:
    whole = read_json(path)
    if whole["format"] != _FORMAT:
        raise ValueError(f"format {whole['format']}")
    signatures = convert_json(whole["signatures"], tuple[Signature, ...])
    return convert_json(whole["store"], str), signatures


def _other_name(version_dir: Path, mine: Record) -> Iterator[Issue]:
    """Checks that the directory has the signed name, config and version."""
    signed = (mine.name, *mine.key.split("/"))
    found = version_dir.absolute().parts[-len(signed) :]
    if found != signed:
        yield _issue(
            "other-name", record.FILE_NAME,
            "The signature is for another dataset or version than the directory.",
            f"signed: {'/'.join(signed)}; directory: {'/'.join(found)}",
        )  # fmt: skip


def _other_files(version_dir: Path, mine: Record) -> Iterator[Issue]:
    """Compares the files with the record."""
    try:
        made = Manifest.read(version_dir)
        declared = Declared.read(version_dir)
    except (IncompleteVersionError, OSError, *MALFORMED):
        made = None
    if made is None or made.content is None:
        yield _issue("other-file", MANIFEST, "The metadata cannot be read.")
        return
    is_part = "splits" in made.options
    if is_part and not is_part_made_here(version_dir, mine, made.options["splits"]):
        # Readers rely on these files, and they are not signed.
        yield _issue(
            "not-signed", MANIFEST,
            "The version has only some splits of a release, and was not written by this machine.",
            "dataset_info.json and the manifest, which are not signed",
        )  # fmt: skip
        return
    shards = {one.name: one for some in made.content.splits.values() for one in some.shards}
    files = {one.name: one for one in mine.files}
    for name, one in files.items():
        path, shard = version_dir / name, shards.get(name)
        if shard is not None and (shard.bytes, shard.sha256) != (one.bytes, one.sha256):
            yield _issue("other-file", name, "The hash in the manifest is not the signed one.")
        elif shard is not None or (is_part and _may_differ(version_dir / name, declared)):
            continue
        elif not _is_same(path, one):
            yield _issue("other-file", name, "The file is not the signed one.")
    known = {name: (one.bytes, one.sha256) for name, one in files.items() if name in shards}
    for name in other_files(version_dir, known, "what was signed"):
        yield _issue("other-file", name, "The shard is not the signed one.")
    for name in sorted(shards.keys() - files.keys()):
        yield _issue("other-file", name, "The shard is not in the signed record.")
    for path in sorted(version_dir.iterdir()):
        is_known = path.name in files or path.name in _NOT_OF_THE_RELEASE
        if not is_known and not path.name.startswith("."):
            yield _issue("extra-file", path.name, "The file is not in the signed record.")


def _may_differ(path: Path, declared: Declared) -> bool:
    """Returns whether a file may differ from the release or be missing, in a partial version."""
    is_of_shards = f".{declared.file_format}" in path.name or sidecars.kind_of(path.name)
    return path.name in REWRITTEN or (bool(is_of_shards) and not os.path.lexists(path))


def _is_same(path: Path, one: ReleasedFile) -> bool:
    try:
        return path.stat().st_size == one.bytes and sha256_of(path) == one.sha256
    except OSError:
        return False


def _issue(code: str, node: str, problem: str, found: str = "") -> Issue:
    return Issue(code, node, problem, _ANEW, found=found)
