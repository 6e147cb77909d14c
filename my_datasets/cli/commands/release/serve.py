"""`my-datasets serve`: runs the dispatcher and workers of a tf.data service."""

import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.errors import InvalidOptionError

_PORT = 5050


@click.command(
    "serve",
    short_help="Run a tf.data service that makes batches on other machines.",
    epilog="Example: my-datasets serve dispatcher & "
    "my-datasets serve worker --dispatcher localhost:5050 --supervise",
)
@click.argument("role", type=click.Choice(["dispatcher", "worker"]))
@click.option(
    "--port", type=click.IntRange(0, 65535),
    help=f"The port to listen on; 0 for any free one.  [default: {_PORT} for a dispatcher, else 0]",
)  # fmt: skip
@click.option(
    "--host", metavar="NAME", default="localhost", show_default=True,
    help="The name under which others reach this machine. Unless it is localhost, the process "
    "listens on all interfaces, and anyone who can connect can run code here.",
)  # fmt: skip
@click.option(
    "--dispatcher", metavar="HOST:PORT", default=f"localhost:{_PORT}", show_default=True,
    help="For a worker: the dispatcher to connect to.",
)  # fmt: skip
@click.option(
    "--wait", "patience", metavar="SECONDS", type=click.FloatRange(0), default=60.0,
    show_default=True, help="For a worker: how long to wait for the dispatcher to start.",
)  # fmt: skip
@click.option(
    "--work-dir", metavar="DIR", type=options.PathOrAddress("gs"),
    help="For a dispatcher: where it keeps its state, so that it can be restarted.  "
    "[default: a temporary directory]",
)  # fmt: skip
@click.option(
    "--worker", "workers", metavar="HOST:PORT", multiple=True,
    help="For a dispatcher: the address of a worker, for sharding='static'. Repeatable.",
)  # fmt: skip
@click.option("--supervise", is_flag=True, help="Restart the process whenever it dies.")
@click.option("--child-of", type=int, hidden=True, help="Exit when this process does.")
@options.json_option
def command(role: str, supervise: bool, child_of: int | None, **settings: Any) -> None:
    """Run a dispatcher or a worker of TensorFlow's tf.data service.

    The dispatcher distributes work to workers, which read, decode and augment for trainers:
    my_datasets.pipeline(..., service="grpc://localhost:5050"). Workers read the data themselves,
    at the same path or URL as the trainer. The process prints its address when it is ready, with
    --json as one line of JSON, and runs until SIGTERM or Ctrl-C.
    """
    output.quiet_tensorflow()
    from my_datasets.input_pipeline.service.server import free_port

    if settings["port"] is None:
        settings["port"] = _PORT if role == "dispatcher" else 0
    settings["port"] = settings["port"] or free_port()
    if role == "worker" and (settings["work_dir"] or settings["workers"]):
        raise InvalidOptionError(
            "--work-dir and --worker are for a dispatcher.", fix="leave them out"
        )
    logging.basicConfig(format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="my_datasets-dispatcher-") as temporary:
        if role == "dispatcher":
            settings["work_dir"] = settings["work_dir"] or temporary
        if supervise:
            _supervise(role, settings)
        else:
            _serve(role, child_of, **settings)


def _serve(
    role: str,
    child_of: int | None,
    *,
    port: int,
    host: str,
    dispatcher: str,
    patience: float,
    work_dir: str | None,
    workers: tuple[str, ...],
    as_json: bool,
) -> None:
    from my_datasets.input_pipeline.service.server import (
        ServiceAddress,
        StopSignal,
        serve_dispatcher,
        serve_worker,
    )

    address = ServiceAddress.parse(f"grpc://{host}:{port}")
    stop = StopSignal(child_of)

    def ready() -> None:
        facts = {"role": role, "url": address.url, "address": str(address), "pid": os.getpid()}
        if as_json:
            output.echo(json.dumps(facts))
        else:
            output.echo(f"The {role} is at {address.url}, process {os.getpid()}")
        sys.stdout.flush()

    with _on_signals(stop.request):
        if role == "dispatcher":
            serve_dispatcher(address, str(work_dir), workers, stop, ready)
        else:
            found = ServiceAddress.parse(f"grpc://{dispatcher.removeprefix('grpc://')}")
            serve_worker(address, found, patience, stop, ready)


def _supervise(role: str, settings: dict[str, Any]) -> None:
    from my_datasets.input_pipeline.service.server import StopSignal, supervise

    given = [
        f"--port={settings['port']}",
        f"--host={settings['host']}",
        f"--child-of={os.getpid()}",
    ]
    if role == "dispatcher":
        given += [f"--work-dir={settings['work_dir']}"]
        given += [f"--worker={one}" for one in settings["workers"]]
    else:
        given += [f"--dispatcher={settings['dispatcher']}", f"--wait={settings['patience']}"]
    given += ["--json"] if settings["as_json"] else []
    stop = StopSignal()
    with _on_signals(stop.request):
        supervise([sys.executable, "-m", "my_datasets", "serve", role, *given], stop)


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Shuts down in order on SIGTERM or SIGINT."""
    before = {one: signal.signal(one, lambda *_: stop()) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
