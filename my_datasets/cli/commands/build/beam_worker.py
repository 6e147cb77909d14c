"""`my-datasets beam-worker`: a pool of Beam's Python workers; and the program for a single one."""

import os

import rich_click as click


@click.command("beam-worker")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The interface to listen on. Whoever reaches it can run code here.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=50000, show_default=True, help="0 for any."
)
def command(host: str, port: int) -> None:
    """Run Beam's Python workers for a runner on this machine, until it is stopped.

    Each worker is a process, started when a runner asks for it and ended with the pool.

    Start it beside each Flink TaskManager or Spark executor, in the environment that has the
    builder's package, and build with --beam-option environment_type=EXTERNAL and --beam-option
    environment_config=127.0.0.1:PORT. Where runners may start processes themselves, build with
    --beam-option environment_type=PROCESS instead, which needs no pool.

    Example: my-datasets beam-worker --port 50000
    """
    from my_datasets.building.engines.beam import workers as worker_pool
    from my_datasets.cli.output import echo, quiet_tensorflow

    quiet_tensorflow()
    address, server, pool = worker_pool.start_pool(host, port)
    echo(f"Waiting for runners at {address}; stop with Ctrl-C")
    try:
        server.wait_for_termination()
    except KeyboardInterrupt:
        server.stop(grace=5).wait()
    finally:
        pool.close()


# Runners differ in what else they pass, and may pass more some day.
@click.command(
    "my-datasets-beam-worker",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option("--id", "worker_id", required=True, help="What the runner calls the worker.")
@click.option("--provision_endpoint", required=True, help="Where the runner says what it wants.")
@click.option("--control_endpoint", default="", help="Where it gives orders.")
@click.option("--logging_endpoint", default="", help="Where it takes logs.")
def worker(
    worker_id: str, provision_endpoint: str, control_endpoint: str, logging_endpoint: str
) -> None:
    """Be one of Beam's Python workers: a program for runners, not for people.

    Runners start it for builds with --beam-option environment_type=PROCESS. If the environment has
    not the same path on their machines as here, add --beam-option
    environment_config='{"command": "/ENV/bin/my-datasets-beam-worker"}'.
    """
    worker_id = worker_id.strip("'")  # Prism quotes it, as if a shell were between
    os.environ["WORKER_ID"] = worker_id  # Beam looks when it is imported
    from my_datasets.building.engines.beam import workers
    from my_datasets.cli.output import quiet_tensorflow, report_error
    from my_datasets.errors import MyDatasetsError

    quiet_tensorflow()
    try:
        workers.run_worker(
            worker_id, provision_endpoint, control=control_endpoint, logs=logging_endpoint
        )
    except MyDatasetsError as error:
        report_error(error)
        raise SystemExit(1) from None
