"""Resources of this process."""

import errno
import os


def cores() -> int:
    """Returns the number of cores that this process may use."""
    # Batch systems and containers often grant only some of the machine's cores.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that the system refuses memory to this process."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    )


def unless_out_of_memory(error: BaseException) -> None:
    """Raises `MemoryError` if an error is about this process's memory, not about a file."""
    if is_out_of_memory(error):
        raise MemoryError(str(error)) from error
