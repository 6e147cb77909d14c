"""`my-datasets catalog`: a static site for the datasets in a store or data directory."""

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output

if TYPE_CHECKING:
    from my_datasets.catalog.site import Rendered
    from my_datasets.publishing.model.signed_json import Trusts
    from my_datasets.publishing.model.signing import TrustedKeys


@click.command("catalog", short_help="Generate a static site for the datasets in a store.")
@click.option(
    "--from", "source", required=True, metavar="STORE|DIR",
    type=options.PathOrAddress(any_scheme=True), envvar="MY_DATASETS_STORE", show_envvar=True,
    help="A store or a data directory.",
)  # fmt: skip
@click.option(
    "--to", metavar="DIR", type=options.LocalPath(path_type=Path), help="The output directory."
)
@click.option("--serve", is_flag=True, help="Serve the site on this machine until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
    help="The port for --serve; 0 for any free one.",
)  # fmt: skip
@click.option("--title", help="The title of the site.  [default: its current title, else Datasets]")
@click.option(
    "--address", metavar="STORE",
    help="The URL of the store to show on pages, if readers use a different one.",
)  # fmt: skip
@click.option("--no-examples", is_flag=True, help="Show no examples, and read no shards.")
@click.option(
    "--no-changes", is_flag=True, help="Do not compare each version with its predecessor."
)
@options.workers_option
@options.trusted_keys_option
@options.feature_imports_option
@options.json_option
@click.pass_context
def command(
    context: click.Context, source: str, to: Path | None, serve: bool, port: int, title: str | None,
    address: str | None, no_examples: bool, no_changes: bool, workers: int | None,
    trusted_keys: "TrustedKeys | None", as_json: bool,
) -> None:  # fmt: skip
    """Generate or update a static site for the datasets in a store.

    Each dataset has a page with its description, versions and the changes between them, features,
    statistics, examples, code to load it, and checksums. The site needs no server and loads
    nothing from elsewhere: open index.html, or copy the site to any web server. Comparisons of
    versions are cached, so an update takes seconds. Exits with 1 if a dataset cannot be shown.

    Example: my-datasets catalog --from gs://our-bucket/datasets --to site

    Example: my-datasets catalog --from ~/tensorflow_datasets --serve
    """
    if to is None and not serve:
        raise click.UsageError("missing --to DIR, or --serve for a temporary site")
    if serve and as_json:
        raise click.UsageError("--serve and --json cannot be combined")
    output.quiet_tensorflow()
    with contextlib.ExitStack() as stack:
        if to is None:
            to = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catalog-"))) / "site"
        done = generate(
            source, to, trusted_keys, title=title, address=address, workers=workers,
            with_changes=not no_changes, with_samples=not no_examples,
        )  # fmt: skip
        for name, problem in done.problems.items():
            output.echo(f"{name} cannot be shown: {problem}", err=True)
        if as_json:
            output.print_json({"path": str(to), **vars(done)})
        else:
            output.echo(f"{done.datasets} datasets, {done.versions} versions in {to}")
        if serve:
            _serve(to, port)
    if done.problems:
        context.exit(1)


def generate(
    source: str, to: Path, keys: "Trusts | None", *, title: str | None = None,
    address: str | None = None, workers: int | None = None, with_changes: bool = True,
    with_samples: bool = True,
) -> "Rendered":  # fmt: skip
    """Generates or updates a site, and shows progress; see `render.write` for the arguments."""
    from my_datasets.catalog.releases import VersionComparer, collect
    from my_datasets.catalog.site import write

    cache = output.cache_dir("catalog")
    with output.progress_bar() as report:
        metadata = cache / "metadata" if cache else None
        found = collect(
            source, keys=keys, cache=metadata, with_examples=with_samples, report=report
        )
        comparing = VersionComparer(cache / "changes" if cache else None, workers=workers)
        return write(
            found, to, title=title, address=address, comparing=comparing if with_changes else None,
            with_samples=with_samples, report=report,
        )  # fmt: skip


def _serve(directory: Path, port: int) -> None:
    """Serves a directory on localhost until interrupted.

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
            f"Port {port} cannot be used: {error.strerror}.",
            fix="choose another port; --port 0 uses any free one",
        ) from error
    with server:
        output.echo(f"See http://127.0.0.1:{server.server_port}/ (press Ctrl-C to stop)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
