"""Every error this package raises on purpose: one tree, rooted at `MyDatasetsError`.

Each message says on its first line what is wrong, on the following lines where and what was
expected, and on its last line how to mend it. Leaves also derive from the built-in exception that
TFDS's users already catch in the same place (`ValueError`, `OSError`, ...). Every class takes the
finished message as its only argument, because TFDS re-creates exceptions from their message when
it adds context to them.
"""


class MyDatasetsError(Exception):
    """Root of all errors raised by `my_datasets`."""


class InvalidReferenceError(MyDatasetsError, ValueError):
    """A text that is not `name[/config][:version]`."""


class DatasetNotFoundError(MyDatasetsError, LookupError, ValueError):
    """No builder and no prepared data has the requested name."""


class ConfigNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, the requested builder config does not."""


class VersionNotFoundError(MyDatasetsError, LookupError, ValueError):
    """The dataset exists, the requested version does not."""


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


class SourceError(MyDatasetsError):
    """The raw data that a builder reads is not what it declares."""


class ChecksumError(SourceError, ValueError):
    """A source file's size or SHA-256 differs from the recorded one."""


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


class OverwriteError(DataDirError):
    """A prepared version cannot be replaced safely where it is."""


class DemoError(MyDatasetsError):
    """The demonstration did not reach the accuracy it promises."""


def explain(problem: str, *facts: str, mend: str) -> str:
    """Returns an error message: the problem, a line for each fact, and how to mend it.

    Args:
      problem: One sentence that says what is wrong.
      *facts: One line each: where, what was expected, what was found. Empty ones are dropped.
      mend: What the reader can do, preferably a command.
    """
    lines = [problem, *(fact for fact in facts if fact), f"To mend: {mend}"]
    return "\n  ".join(lines)
