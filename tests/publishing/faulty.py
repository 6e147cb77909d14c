"""A proxy on loopback that loses connections and answers 503, as networks and stores do."""

import contextlib
import random
import socket
import threading

_UNAVAILABLE = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes connections on to a server; some of them badly.

    Attributes:
      address: Where it listens: host and port.
      faults: How often it did badly, by what.
    """

    def __init__(self, server, seed, share=0.3, most=25):
        self._server = server
        self._random = random.Random(seed)
        self._share, self._left = share, most
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.faults = {"503": 0, "cut answer": 0, "cut request": 0, "slow": 0}
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _draw(self):
        with self._lock:
            if self._left <= 0 or self._random.random() > self._share:
                return None, 0
            self._left -= 1
            fault = self._random.choice(list(self.faults))
            self.faults[fault] += 1
            return fault, self._random.choice([0, 1, 100, 3000, 30_000, 100_000])

    def _pass_on(self, client):
        fault, after = self._draw()
        with contextlib.suppress(OSError), client:
            if fault == "503":
                client.recv(1 << 16)
                client.sendall(_UNAVAILABLE)
                return
            with socket.create_connection(self._server) as server:
                there = threading.Thread(
                    target=_copy, args=(client, server, after if fault == "cut request" else None),
                    daemon=True,
                )  # fmt: skip
                there.start()
                _copy(server, client, after if fault == "cut answer" else None, fault == "slow")


def _copy(source, target, most, slow=False):
    """Copies until one of them ends, or some bytes have gone; then both are closed."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 12 if slow else 1 << 16):
            if most is not None:
                data = data[:most]
                most -= len(data)
            target.sendall(data)
            if most == 0:
                break
            if slow:
                threading.Event().wait(0.005)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
