"""What the machine gives to this process."""

import os


def cores() -> int:
    """Returns how many cores this process may use."""
    # A batch system or a container often lends a few of those that the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
