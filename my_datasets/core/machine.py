"""What the machine gives to this process."""

import errno
import os


def cores() -> int:
    """Returns how many cores this process may use."""
    # A batch system or a container often lends a few of those that the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error says that the system gives this process no more memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )


def unless_out_of_memory(error: BaseException) -> None:
    """Does nothing for an error that tells of a file, as one that cannot be read or is damaged.

    Raises:
      MemoryError: It tells of this process, which has no more memory.
    """
    if is_out_of_memory(error):
        raise MemoryError(str(error)) from error
