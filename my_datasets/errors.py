"""Every error this package raises on purpose: one tree, rooted at `MyDatasetsError`.

An error is built from fields: the problem, facts such as the location and what was expected, and
the fix. Its message has a line for each. Leaf classes also derive from the built-in exception that
TFDS users already catch in that situation (`ValueError`, `OSError`, ...). Every class also takes a
finished message as its only argument, because TFDS re-creates exceptions from their message when
it adds context to them.

Names, notes and reasons in a message may be untrusted text. `printable` makes sure that a terminal
does not interpret them, that nothing in them is hidden, and that they cannot pass for a line of
ours.
"""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from my_datasets.printable import PrintableError, folded, on_one_line, printable

# Similarity from 0 to 1 above which a name may be a typo of another.
_ALIKE = 0.7


class _Message(str):
    """A message that `explain` made, with the fields that it was made from."""

    problem: str
    facts: tuple[str, ...]
    fix: str


class MyDatasetsError(PrintableError):
    """Root of all errors raised by `my_datasets`.

    Attributes:
      problem: One sentence that states what is wrong, or all of a message that has no fields.
      facts: One line each: the location, what was expected, what was found.
      fix: What the reader can do, preferably a command.
      code: Tells apart causes that share a class; usually empty.
    """

    problem: str = ""
    facts: tuple[str, ...] = ()
    fix: str = ""
    code: str = ""

    def __init__(self, problem: str = "", *facts: str, fix: str = "", code: str = "") -> None:
        """Takes the fields as `explain` does, or a finished message."""
        message = explain(problem, *facts, fix=fix) if fix or any(facts) else problem
        super().__init__(str(message))
        self.problem, self.code = printable(problem), code
        if isinstance(message, _Message):
            self.problem, self.facts, self.fix = message.problem, message.facts, message.fix


class InvalidReferenceError(MyDatasetsError, ValueError):
    """A string is not of the form `name[/config][:version]`."""


class DatasetNotFoundError(MyDatasetsError, LookupError, ValueError):
    """No builder and no prepared data has the requested name."""


class ConfigNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, but the requested builder config does not."""


class VersionNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, but the requested version does not."""


class VersionBlockedError(MyDatasetsError, ValueError):
    """The version is blocked by its builder or its own metadata; the message gives the reason."""


class VersionNotBuildableError(MyDatasetsError, ValueError):
    """The version can be loaded where it is prepared, but the current code does not build it."""


class SplitNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, but the requested split does not."""


class NotPreparedError(MyDatasetsError, LookupError):
    """The version exists in code, but its data has not been built and building was not allowed."""


class BuilderError(MyDatasetsError):
    """A dataset builder is wrong; its author must change it."""


class BuilderImportError(BuilderError, ImportError):
    """A builder's module raised while it was imported; the cause has its traceback."""


class DuplicateBuilderError(BuilderError, ValueError):
    """Two different builders claim the same dataset name."""


class InvalidKeyError(BuilderError, TypeError):
    """An example's key is not a string, bytes or an int."""


class ExampleError(BuilderError, ValueError):
    """An example does not match the features of its dataset."""


class DuplicateKeyError(BuilderError, ValueError):
    """Two examples of a split have the same key."""


class EmptySplitError(BuilderError, ValueError):
    """A split has no examples."""


class VersionGateError(BuilderError, ValueError):
    """The version number was not raised enough for what changed since the previous version."""


class ConstraintError(BuilderError, ValueError):
    """Values violate the constraints that the builder declares."""


class UnitError(BuilderError, RuntimeError):
    """The generator of a unit raised; the cause is its error, with the worker's traceback."""


class BuildInterruptedError(MyDatasetsError, RuntimeError):
    """A worker process died or hung; finished work is kept for the next build."""


class FeatureError(MyDatasetsError, TypeError):
    """A feature does not exist, or its kind is not supported."""


class PlanError(MyDatasetsError, ValueError):
    """A plan, or a saved position in one, belongs to other data or to another plan."""


class LostExamplesError(MyDatasetsError, RuntimeError):
    """Counts do not add up: examples were lost or duplicated, and nothing is published."""


class QuarantineError(BuilderError, ValueError):
    """More examples fail to match the features than may be quarantined."""


class InvalidOptionError(MyDatasetsError, ValueError):
    """An option has an invalid value."""


class UnknownOptionError(InvalidOptionError, TypeError):
    """A function has no option of this name, or does not accept it by position."""


class UnknownMethodError(MyDatasetsError, AttributeError):
    """An object has no method of this name; the message says what to use instead."""


class StaleDataError(MyDatasetsError, RuntimeError):
    """Prepared data of this version was built from different code or input, or with limits."""


class SourceError(MyDatasetsError):
    """The raw data that a builder reads is not what it declares."""


class ChecksumError(SourceError, ValueError):
    """A source file's size or SHA-256 differs from the recorded one."""


class DownloadError(SourceError, OSError):
    """A file could not be downloaded completely, or the server sent something else."""


class MissingDependencyError(MyDatasetsError, ImportError):
    """A required distribution is not installed; the message has the `pip install` command."""


class DataDirError(MyDatasetsError, OSError):
    """The data directory cannot be used."""


class DataDirNotFoundError(DataDirError, FileNotFoundError):
    """The given data directory does not exist."""


class DataDirNotWritableError(DataDirError, PermissionError):
    """The data directory, or the parent in which to create it, is not writable."""


class DiskFullError(DataDirError):
    """The file system of the data directory is full."""


class IncompleteVersionError(DataDirError):
    """A version's directory exists, but lacks the metadata of a complete version."""


class UnregisteredFeatureError(DataDirError):
    """Metadata names a feature class that is neither TFDS's nor registered; it is not imported."""


class CorruptShardError(DataDirError):
    """A shard or its record index is damaged."""


class FileAccessError(MyDatasetsError, OSError):
    """The operating system denies reading or writing a file or folder."""


class OutOfMemoryError(MyDatasetsError, MemoryError):
    """This process is out of memory."""


class LockError(MyDatasetsError, RuntimeError):
    """The data does not match the lock, or the lock file cannot be read."""


class OverwriteError(DataDirError):
    """A prepared version cannot be replaced safely in place."""


class StoreError(MyDatasetsError, OSError):
    """A store cannot be used, or its content is invalid."""


class StoreUnavailableError(StoreError, ConnectionError):
    """A store does not respond, or responds with a temporary error; a retry may help."""


class NotInStoreError(StoreError, FileNotFoundError):
    """A store does not have this file."""


class AlreadyInStoreError(StoreError, FileExistsError):
    """A store already has this file, and files in a store are never replaced."""


class ChangedInStoreError(StoreError):
    """Another process changed a file in the store concurrently."""


class CorruptReleaseError(StoreError):
    """A store returns data that differs from what was published, or that is not a release."""


class ReleaseNotFoundError(MyDatasetsError, LookupError):
    """A store has no release that matches a reference."""


class YankedError(MyDatasetsError, RuntimeError):
    """A release was withdrawn; the message gives the reason."""


class PublishError(MyDatasetsError, RuntimeError):
    """A version is not fit for publishing."""


class ReleaseConflictError(PublishError):
    """Different bytes are already published under the same version."""


class SignatureError(MyDatasetsError, ValueError):
    """A signature is missing, invalid or from an untrusted key, or a signed state is too old."""


class ServiceError(MyDatasetsError, RuntimeError):
    """A tf.data service fails to do what it is asked to, or times out."""


class StreamError(MyDatasetsError, RuntimeError):
    """A stream of messages cannot be read, or not in the requested way."""


class StreamUnavailableError(StreamError, ConnectionError):
    """No broker of a stream responds; a retry may help."""


class LostMessagesError(StreamError, LookupError):
    """Messages that were still to be read are no longer in the topic."""


class DemoError(MyDatasetsError):
    """The demonstration does not reach the accuracy it promises."""


def in_an_object_store(data_dir: str) -> DataDirError:
    """Returns the error for an operation that requires data in a local directory."""
    return DataDirError(
        f"{data_dir} is in an object store, but this operation needs local data.",
        fix="copy the version's folder to NAME/VERSION in a local directory with the store's "
        "own tools; my_datasets.pipeline(..., data_dir=...) reads it in place",
    )


def missing_shard(path: str | os.PathLike[str]) -> CorruptShardError:
    """Returns the error for a shard that its version declares but that does not exist."""
    folder = Path(path).parent
    return CorruptShardError(
        f"{os.fspath(path)} does not exist.",
        f"The metadata in {folder} declares it.",
        fix=f"run my-datasets verify {folder} to see what else is missing; rebuild or pull it",
    )


def damaged_release(source: str, found: str) -> CorruptReleaseError:
    """Returns the error for a file that differs from what was published."""
    return CorruptReleaseError(
        f"{source} is not what was published.",
        f"Found: {found}",
        fix="ask the publisher to check it: publishing the same version again restores missing "
        "files; this machine uses nothing of it",
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a "Did you mean ..." fact for `explain`, or "" if no known name is similar."""
    named = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), list(named), n=1, cutoff=_ALIKE)
    return f"Did you mean {named[near[0]]!r}?" if near else ""


def explain(problem: str, *facts: str, fix: str) -> str:
    """Returns an error message: the problem, one line per fact, and the fix.

    Every line but the first is indented by two spaces. Further lines within a text are prefixed
    with four spaces and `| `, so that untrusted text cannot add a fact or pose as the fix.

    Args:
      problem: One sentence that states what is wrong.
      *facts: One line each: the location, what was expected, what was found. Empty ones are
        dropped.
      fix: What the reader can do, preferably a command. It is kept on one line, and has none if
        it is empty.
    """
    facts = tuple(filter(None, facts))
    last = [f"Fix: {on_one_line(fix)}"] if fix else []
    message = _Message("\n  ".join([*map(folded, (problem, *facts)), *last]))
    message.problem, message.fix = printable(problem), printable(fix)
    message.facts = tuple(map(printable, facts))
    return message


def problem_of(error: BaseException) -> str:
    """Returns in one line what went wrong: the first of a foreign error, or its class."""
    text = error.problem if isinstance(error, MyDatasetsError) else str(error)
    return text.partition("\n")[0] or type(error).__name__
