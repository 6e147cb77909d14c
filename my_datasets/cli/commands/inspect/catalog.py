"""`my-datasets catalog`: a static site about the datasets in a store, or in a data directory."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import feature_imports_option, trusted, trusted_keys_option
from my_datasets.cli.output import (
    LocalPath,
    PathOrAddress,
    cache_dir,
    echo,
    error_console,
    json_option,
    print_json,
    quiet_tensorflow,
    workers_option,
)

if TYPE_CHECKING:
    from my_datasets.catalog.site.render import Rendered
    from my_datasets.publishing.model.signed_json import Trusts


@click.command("catalog", short_help="Make a site about the datasets in a store.")
@click.option(
    "--from", "source", required=True, metavar="STORE|DIR", type=PathOrAddress(any_scheme=True),
    envvar="MY_DATASETS_STORE", show_envvar=True, help="A store, or a data directory.",
)  # fmt: skip
@click.option(
    "--to", metavar="DIR", type=LocalPath(path_type=Path), help="The directory of the site."
)
@click.option("--serve", is_flag=True, help="Show it at an address of this machine, until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
    help="With --serve; 0 for any that is free.",
)  # fmt: skip
@click.option(
    "--title", help="What the site is called.  [default: Datasets, or what it is called already]"
)
@click.option(
    "--address", metavar="STORE",
    help="The address that pages name, if others reach the store by another one.",
)  # fmt: skip
@click.option("--no-examples", is_flag=True, help="Show no examples: no shard is read for them.")
@click.option("--no-changes", is_flag=True, help="Do not compare each version with the one before.")
@workers_option
@trusted_keys_option
@feature_imports_option
@json_option
@click.pass_context
def command(
    context: click.Context, source: str, to: Path | None, serve: bool, port: int, title: str | None,
    address: str | None, no_examples: bool, no_changes: bool, workers: int | None,
    trusted_keys: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Make a static site about the datasets in a store, or renew one.

    For each dataset there is a page with its description, versions and what changed between them,
    features, statistics, examples, code that loads it, and checksums. The site needs no server and
    fetches nothing from elsewhere: open index.html, or copy it to any web server. What was found by
    comparing versions is kept, so that renewing takes seconds. Exits with 1 if a dataset cannot be
    shown.

    Example: my-datasets catalog --from gs://our-bucket/datasets --to site

    Example: my-datasets catalog --from ~/tensorflow_datasets --serve
    """
    if to is None and not serve:
        raise click.UsageError("say where to: --to DIR, or --serve to only look at it")
    if serve and as_json:
        raise click.UsageError("--serve prints an address, --json a report: give one of the two")
    quiet_tensorflow()
    with contextlib.ExitStack() as stack:
        if to is None:
            to = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catalog-"))) / "site"
        done = made(
            source, to, trusted(trusted_keys), title=title, address=address, workers=workers,
            with_changes=not no_changes, with_samples=not no_examples,
        )  # fmt: skip
        for name, problem in done.problems.items():
            echo(f"{name} cannot be shown: {problem}", err=True)
        if as_json:
            print_json({"path": str(to), **vars(done)})
        else:
            echo(f"{done.datasets} datasets, {done.versions} versions in {to}")
        if serve:
            _serve(to, port)
    if done.problems:
        context.exit(1)


def made(
    source: str, to: Path, keys: "Trusts | None", *, title: str | None = None,
    address: str | None = None, workers: int | None = None, with_changes: bool = True,
    with_samples: bool = True,
) -> "Rendered":  # fmt: skip
    """Makes a catalogue, or renews it, and shows how far it is.

    Args:
      source: A store's address, or a data directory.
      to: The directory of the site.
      keys: Whose signatures count.
      title: What it is called; None for what it is called already.
      address: The address that pages name; None for the one they name already.
      workers: Processes that compare versions.
      with_changes: Whether versions are compared.
      with_samples: Whether examples are read.
    """
    from my_datasets.catalog.releases import VersionComparer, collect
    from my_datasets.catalog.site.render import write

    cache = cache_dir("catalog")
    with _bar() as (begin, tell):
        begin("Reading metadata", None)
        kept = cache / "metadata" if cache else None
        found = collect(source, keys=keys, cache=kept, with_examples=with_samples, report=tell)
        comparing = VersionComparer(cache / "changes" if cache else None, workers=workers)
        begin("Writing pages", len(found.datasets))
        return write(
            found, to, title=title, address=address, comparing=comparing if with_changes else None,
            with_samples=with_samples, report=tell,
        )  # fmt: skip


@contextlib.contextmanager
def _bar() -> Iterator[tuple[Callable[[str, int | None], None], Callable[[str], None]]]:
    """Yields what begins a stage, and what is told of each dataset."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn(),
               TextColumn("{task.fields[dataset]}", markup=False))  # fmt: skip
    out = error_console()
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bar:
        task = bar.add_task("", total=None, dataset="")

        def begin(stage: str, total: int | None) -> None:
            bar.reset(task, description=stage, total=total, dataset="")

        def tell(dataset: str) -> None:
            bar.update(task, advance=1, dataset=dataset)

        yield begin, tell


def _serve(directory: Path, port: int) -> None:
    """Serves a directory to this machine only, until it is interrupted.

    Raises:
      InvalidOptionError: The port is not free.
    """
    import functools
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    from my_datasets.errors import InvalidOptionError

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(directory))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise InvalidOptionError(
            f"The port {port} cannot be used: {error.strerror}.",
            fix="give another one: --port 0 takes any that is free",
        ) from error
    with server:
        echo(f"See http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
