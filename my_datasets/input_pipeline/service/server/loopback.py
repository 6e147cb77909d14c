"""Restricts ports to the loopback interface.

TensorFlow's servers always listen on all interfaces. Anyone who can reach one can have it execute
any graph, which may read and write files. So as soon as a server listens, its socket is bound to
the loopback interface; this needs Linux 5.7, or the capability CAP_NET_RAW.
"""

import os
import socket
import sys
from pathlib import Path

from my_datasets.errors import ServiceError, explain

_DESCRIPTORS = Path("/proc/self/fd")


def restrict_to_loopback(port: int) -> None:
    """Makes a port that this process listens on unreachable from other machines.

    Args:
      port: The port.

    Raises:
      ServiceError: The system does not support or allow it, or this process does not listen there.
    """
    if not sys.platform.startswith("linux"):
        raise _refused(port, "that is done on Linux only")
    found = 0
    for descriptor in _DESCRIPTORS.iterdir():
        try:
            copy = socket.socket(fileno=os.dup(int(descriptor.name)))
        except OSError:
            continue  # not a socket, or closed concurrently
        with copy:
            if _listens(copy, port):
                try:
                    copy.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
                except OSError as error:
                    raise _refused(port, str(error)) from error
                found += 1
    if not found:
        raise _refused(port, "this process does not listen there")


def free_port() -> int:
    """Returns a port that is currently unused."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def _listens(one: socket.socket, port: int) -> bool:
    try:
        is_listening = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        name = one.getsockname()
    except OSError:
        return False
    return bool(is_listening) and isinstance(name, tuple) and name[1] == port


def _refused(port: int, reason: str) -> ServiceError:
    return ServiceError(
        explain(
            f"Port {port} cannot be restricted to this machine: {reason}.",
            "TensorFlow's servers listen on all interfaces; whoever reaches one can run code",
            fix="give --host with this machine's name in a network that you trust",
        )
    )
