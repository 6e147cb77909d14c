"""Every error this package raises on purpose: one tree, rooted at `MyDatasetsError`.

Each message says on its first line what is wrong, on the following lines where and what was
expected, and on its last line how to fix it. Leaves also derive from the built-in exception that
TFDS's users already catch in the same place (`ValueError`, `OSError`, ...). Every class takes the
finished message as its only argument, because TFDS re-creates exceptions from their message when
it adds context to them.

Names, notes and reasons in a message may be texts of others. Nothing in them is obeyed by a
terminal, hidden, or taken for a line of ours: `printable`.
"""

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from my_datasets.printable import PrintableError, folded, on_one_line

# How alike names are of which one may be a typo of the other, from 0 to 1.
_ALIKE = 0.7


class MyDatasetsError(PrintableError):
    """Root of all errors raised by `my_datasets`."""


class InvalidReferenceError(MyDatasetsError, ValueError):
    """A text that is not `name[/config][:version]`."""


class DatasetNotFoundError(MyDatasetsError, LookupError, ValueError):
    """No builder and no prepared data has the requested name."""


class ConfigNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, the requested builder config does not."""


class VersionNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, the requested version does not."""


class VersionBlockedError(MyDatasetsError, ValueError):
    """The version must not be used: its builder, or its own metadata, say so, and why."""


class VersionNotBuildableError(MyDatasetsError, ValueError):
    """The version can be loaded where it is prepared; the code as it is now does not build it."""


class SplitNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, the requested split does not."""


class NotPreparedError(MyDatasetsError, LookupError):
    """The version exists in code, its data has not been built, and building was not allowed."""


class BuilderError(MyDatasetsError):
    """A dataset builder is wrong; its author must change it."""


class BuilderImportError(BuilderError, ImportError):
    """The module of a builder raised while it was imported; the cause holds its traceback."""


class DuplicateBuilderError(BuilderError, ValueError):
    """Two different builders claim one dataset name."""


class InvalidKeyError(BuilderError, TypeError):
    """An example's key is not a text, bytes or an int."""


class ExampleError(BuilderError, ValueError):
    """An example does not fit the features of its dataset."""


class DuplicateKeyError(BuilderError, ValueError):
    """Two examples of a split have the same key."""


class EmptySplitError(BuilderError, ValueError):
    """A split has no example."""


class VersionGateError(BuilderError, ValueError):
    """A version's number was raised by too little for what changed since the one before it."""


class ConstraintError(BuilderError, ValueError):
    """Values are not what the builder declares of them."""


class UnitError(BuilderError, RuntimeError):
    """The generator of a unit raised; the cause is its error, with the worker's traceback."""


class BuildInterruptedError(MyDatasetsError, RuntimeError):
    """A worker process died or hung; what was finished is kept for the next build."""


class FeatureError(MyDatasetsError, TypeError):
    """A feature is of a kind that cannot be read here, or is not there."""


class PlanError(MyDatasetsError, ValueError):
    """A plan, or a saved position in one, belongs to other data or another plan."""


class LostExamplesError(MyDatasetsError, RuntimeError):
    """Counts do not add up: examples were lost or doubled. Nothing is published then."""


class QuarantineError(BuilderError, ValueError):
    """More examples do not fit the features than may be set aside."""


class InvalidOptionError(MyDatasetsError, ValueError):
    """An option has a value that it cannot have."""


class UnknownOptionError(InvalidOptionError, TypeError):
    """A function has no option of this name, or not by position."""


class UnknownMethodError(MyDatasetsError, AttributeError):
    """An object has no method of this name; the message says what to use."""


class StaleDataError(MyDatasetsError, RuntimeError):
    """Prepared data of this version was made by other code, from other input or with limits."""


class SourceError(MyDatasetsError):
    """The raw data that a builder reads is not what it declares."""


class ChecksumError(SourceError, ValueError):
    """A source file's size or SHA-256 differs from the recorded one."""


class DownloadError(SourceError, OSError):
    """A file could not be downloaded whole, or something else came in its place."""


class MissingDependencyError(MyDatasetsError, ImportError):
    """A distribution is needed that is not installed; the message names the `pip install`."""


class DataDirError(MyDatasetsError, OSError):
    """The data directory cannot be used."""


class DataDirNotFoundError(DataDirError, FileNotFoundError):
    """The given data directory does not exist."""


class DataDirNotWritableError(DataDirError, PermissionError):
    """The data directory, or where it should be made, cannot be written."""


class DiskFullError(DataDirError):
    """The file system of the data directory has no room left."""


class IncompleteVersionError(DataDirError):
    """The directory of a version is there, without the metadata of a whole one."""


class UnregisteredFeatureError(DataDirError):
    """Metadata name a feature class that is neither TFDS's nor registered: it is not imported."""


class CorruptShardError(DataDirError):
    """A shard, or its record index, is damaged."""


class FileAccessError(MyDatasetsError, OSError):
    """The system does not let a file or folder be read or written."""


class OutOfMemoryError(MyDatasetsError, MemoryError):
    """The system gives this process no more memory."""


class LockError(MyDatasetsError, RuntimeError):
    """Data are others than those that a reference is locked to, or the lock cannot be read."""


class OverwriteError(DataDirError):
    """A prepared version cannot be replaced safely where it is."""


class StoreError(MyDatasetsError, OSError):
    """A store cannot be used, or what is in it is none."""


class StoreUnavailableError(StoreError, ConnectionError):
    """A store does not answer, or not well; asking again may help."""


class NotInStoreError(StoreError, FileNotFoundError):
    """A store has no such file."""


class AlreadyInStoreError(StoreError, FileExistsError):
    """A store has such a file already, and files of a store are not replaced."""


class ChangedInStoreError(StoreError):
    """Somebody else changed a file of a store in the meantime."""


class CorruptReleaseError(StoreError):
    """What a store gives is not what was published there, or is no release at all."""


class ReleaseNotFoundError(MyDatasetsError, LookupError):
    """A store has no release that a reference means."""


class YankedError(MyDatasetsError, RuntimeError):
    """A release was withdrawn; the message says why."""


class PublishError(MyDatasetsError, RuntimeError):
    """A version is not fit to be published."""


class ReleaseConflictError(PublishError):
    """Other bytes are published under the same version."""


class SignatureError(MyDatasetsError, ValueError):
    """A signature is missing, wrong, or by nobody who is trusted; or a state is an older one."""


class ServiceError(MyDatasetsError, RuntimeError):
    """A tf.data service does not do what is asked of it, or not in time."""


class StreamError(MyDatasetsError, RuntimeError):
    """A stream of messages cannot be read, or not as it was asked."""


class StreamUnavailableError(StreamError, ConnectionError):
    """No broker of a stream answers; asking again may help."""


class LostMessagesError(StreamError, LookupError):
    """Messages that were to be read are not in the topic any more."""


class DemoError(MyDatasetsError):
    """The demonstration did not reach the accuracy it promises."""


def in_an_object_store(data_dir: str) -> DataDirError:
    """Returns the error for what is only done with data in a directory of this machine."""
    return DataDirError(
        explain(
            f"{data_dir} is in an object store, and this is done with data on this machine.",
            fix="copy the version's folder to NAME/VERSION in a directory, by the store's own "
            "tools, and name that; my_datasets.pipeline(..., data_dir=...) reads it where it is",
        )
    )


def missing_shard(path: str | os.PathLike[str]) -> CorruptShardError:
    """Returns the error for a shard that its version declares and that is not there."""
    folder = Path(path).parent
    return CorruptShardError(
        explain(
            f"{os.fspath(path)} is not there.",
            f"The metadata in {folder} declare it.",
            fix=f"my-datasets verify {folder} says what else is missing; build or pull it anew",
        )
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a fact for `explain`: which name is meant, if one is alike; else nothing."""
    named = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), list(named), n=1, cutoff=_ALIKE)
    return f"Did you mean {named[near[0]]!r}?" if near else ""


def explain(problem: str, *facts: str, fix: str) -> str:
    """Returns an error message: the problem, a line for each fact, and how to fix it.

    Each begins with two spaces, but for the problem. Further lines within a text are marked by four
    spaces and `| `: whoever wrote the text cannot add a fact, or say how to fix something.

    Args:
      problem: One sentence that says what is wrong.
      *facts: One line each: where, what was expected, what was found. Empty ones are dropped.
      fix: What the reader can do, preferably a command. It stays one line.
    """
    lines = [folded(one) for one in (problem, *facts)]
    return "\n  ".join([lines[0], *filter(None, lines[1:]), f"Fix: {on_one_line(fix)}"])


def with_fact(message: str, fact: str) -> str:
    """Returns an error message with one more fact.

    Args:
      message: What `explain` returned.
      fact: One line.
    """
    known, mark, fix = message.rpartition("\n  Fix: ")
    return f"{known}\n  {folded(fact)}{mark}{fix}"
