"""Machines on this one: each with a network, a host name and directories of its own.

They are network namespaces of Linux on a bridge, and processes in mount namespaces of their own. So
an address of the loopback leads nowhere else, and a file that one writes is not there for another,
as on several machines; the environment is at the same path on all of them.
"""

import contextlib
import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import programs

# In the machine: its own directories, its own name, then the command.
_BEGIN = (
    'mount --bind "$HOSTS" /etc/hosts; for each in $OWN; do mount -t tmpfs none "$each"; done; '
    'hostname "$MACHINE"; exec "$@"'
)


@dataclass(frozen=True)
class Machine:
    """A machine.

    Attributes:
      name: Its host name.
      address: Its IPv4 address.
      own: Directories that it has for itself: there they are empty at first.
      hosts: The file by which it knows the names of all machines.
      cable: The end of its network's cable on this machine.
    """

    name: str
    address: str
    own: tuple[Path, ...]
    hosts: Path
    cable: str

    def unplug(self) -> None:
        """Takes its network away, without a word to those that it talks with."""
        _ip("link", "set", self.cable, "down")

    def plug_in(self) -> None:
        """Gives it back."""
        _ip("link", "set", self.cable, "up")

    def start(
        self, command: Sequence[Any], environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen:
        """Starts a process there; the arguments are those of `Popen`."""
        inside = ["ip", "netns", "exec", self.name, "unshare", "--mount", "--uts", "sh", "-c"]
        return subprocess.Popen(
            [*inside, _BEGIN, "sh", *map(str, command)],
            env={
                **os.environ, **(environment or {}), "MACHINE": self.name,
                "OWN": " ".join(map(str, self.own)), "HOSTS": str(self.hosts),
            },
            **options,
        )  # fmt: skip


@dataclass(frozen=True)
class Machines:
    """Some machines.

    Attributes:
      here: The address by which they reach this process's machine.
      others: The others.
    """

    here: str
    others: tuple[Machine, ...]


@contextlib.contextmanager
def started(count: int, own: Sequence[Path]) -> Iterator[Machines]:
    """Makes machines, and removes them.

    Args:
      count: How many, beside this one.
      own: Directories that each has for itself; they are made.
    """
    programs.require_root()  # machines are made of network namespaces
    programs.require("ip", "iproute2")
    for directory in own:
        directory.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(3)
    net = f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(256)}"
    bridge = f"br{mark}"
    with contextlib.ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("address", "add", f"{net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        machines = []
        hosts = Path(stack.enter_context(tempfile.NamedTemporaryFile()).name)
        lines = ["127.0.0.1 localhost"]
        for number in range(1, count + 1):
            name, port, address = f"machine{number}-{mark}", f"v{number}{mark}", f"{net}.{number}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            machines.append(Machine(name, address, tuple(own), hosts, port))
            lines.append(f"{address} {name}")
        hosts.write_text("\n".join(lines))
        yield Machines(f"{net}.254", tuple(machines))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
