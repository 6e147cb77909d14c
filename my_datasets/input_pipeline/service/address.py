"""The address of a dispatcher or a worker."""

import ipaddress
import re
import socket
from dataclasses import dataclass

from my_datasets.errors import InvalidOptionError

_PATTERN = re.compile(r"grpc://(?P<host>[A-Za-z0-9._-]+):(?P<port>\d{1,5})/?")


@dataclass(frozen=True)
class ServiceAddress:
    """A host name or IP address, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> "ServiceAddress":
        """Parses a URL such as `grpc://localhost:5050`.

        Raises:
          InvalidOptionError: It is not the address of a tf.data service.
        """
        match = _PATTERN.fullmatch(url)
        if match is None or int(match["port"]) > 65535:
            raise InvalidOptionError(
                f"{url!r} is not the address of a tf.data service.",
                fix="give one such as grpc://localhost:5050, which my-datasets serve "
                "dispatcher prints",
            )
        return cls(match["host"], int(match["port"]))

    @property
    def url(self) -> str:
        """The URL, in the form TensorFlow expects."""
        return f"grpc://{self}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether this is a loopback address or this machine's host name."""
        return is_loopback(self.host) or self.host == socket.gethostname()


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine's loopback interface, unreachable from others."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
