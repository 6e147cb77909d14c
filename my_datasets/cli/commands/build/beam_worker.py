"""`my-datasets beam-worker`: a pool of Beam's Python workers, and the program of each worker."""

import os

import rich_click as click


@click.command("beam-worker")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The interface to listen on. Anyone who can connect can run code here.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=50000,
    show_default=True,
    help="The port to listen on; 0 for any free one.",
)
def command(host: str, port: int) -> None:
    """Run a pool of Beam's Python workers on this machine until stopped.

    The pool starts a worker process when a runner asks for one, and stops them all when it exits.

    Start a pool beside each Flink TaskManager or Spark executor, in an environment with the
    builder's package, and build with --beam-option environment_type=EXTERNAL and --beam-option
    environment_config=127.0.0.1:PORT. If runners may start processes themselves, build with
    --beam-option environment_type=PROCESS instead; this needs no pool.

    Example: my-datasets beam-worker --port 50000
    """
    from my_datasets.building.engines.beam import workers as worker_pool
    from my_datasets.cli import output

    output.quiet_tensorflow()
    address, server, pool = worker_pool.start_pool(host, port)
    output.echo(f"Waiting for runners at {address}; stop with Ctrl-C")
    try:
        server.wait_for_termination()
    except KeyboardInterrupt:
        server.stop(grace=5).wait()
    finally:
        pool.close()


# Runners pass other options, too.
@click.command(
    "my-datasets-beam-worker",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.option("--id", "worker_id", required=True, help="The runner's id for the worker.")
@click.option("--provision_endpoint", required=True, help="Where the runner describes the job.")
@click.option("--control_endpoint", default="", help="Where the runner sends instructions.")
@click.option("--logging_endpoint", default="", help="Where the runner receives logs.")
def worker(
    worker_id: str, provision_endpoint: str, control_endpoint: str, logging_endpoint: str
) -> None:
    """Run one of Beam's Python workers; started by runners, not by users.

    Runners start it for builds with --beam-option environment_type=PROCESS. If the environment has
    a different path on their machines, add --beam-option
    environment_config='{"command": "/ENV/bin/my-datasets-beam-worker"}'.
    """
    worker_id = worker_id.strip("'")  # Prism quotes it as for a shell
    os.environ["WORKER_ID"] = worker_id  # read when Beam is imported
    from my_datasets.building.engines.beam import workers
    from my_datasets.cli import output
    from my_datasets.errors import MyDatasetsError

    output.quiet_tensorflow()
    try:
        workers.run_worker(
            worker_id, provision_endpoint, control=control_endpoint, logs=logging_endpoint
        )
    except MyDatasetsError as error:
        output.report_error(error)
        raise SystemExit(1) from None
