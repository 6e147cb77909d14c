"""`my-datasets beam-worker`: a pool of Beam's Python workers."""

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
    environment_config=127.0.0.1:PORT.

    Example: my-datasets beam-worker --port 50000
    """
    from my_datasets.building.engines.beam import worker_pool

    address, server, pool = worker_pool.start(host, port)
    click.echo(f"Waiting for runners at {address}; stop with Ctrl-C")
    try:
        server.wait_for_termination()
    except KeyboardInterrupt:
        server.stop(grace=5).wait()
    finally:
        pool.close()
