"""`my-datasets verify`: whether prepared data is what it is said to be."""

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.options import (
    feature_imports_option,
    progress,
    store_option,
    trusted,
    trusted_keys_option,
)
from my_datasets.cli.output import (
    bold,
    cache_dir,
    console,
    data_dir_option,
    error_console,
    html_option,
    human_size,
    json_option,
    print_json,
    quiet_tensorflow,
    workers_option,
    write_page,
)
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.core.issue import Issue
    from my_datasets.verification.report import Report, VerifyProgress


# What says which builder makes it, and what it made.
_NOT_TO_BE_REBUILT = frozenset({"missing-metadata", "unreadable-metadata", "unreadable-manifest"})


@click.command("verify")
@click.argument("versions", metavar="[NAME[/CONFIG][:VERSION]|PATH]...", nargs=-1, required=True)
@data_dir_option
@store_option("--from", reads=True, required=False)
@trusted_keys_option
@click.option("--fast", is_flag=True, help="Compare metadata, names and sizes; read no shard.")
@click.option(
    "--deep", is_flag=True, help="Take each example apart, and compare digests of the content."
)
@click.option(
    "--near-duplicates",
    is_flag=True,
    help="With --deep, tell images and texts of two splits that are nearly the same, too.",
)
@click.option(
    "--image-distance",
    type=click.IntRange(0, 12),
    default=6,
    metavar="BITS",
    help="How many of the 64 bits of such images' perceptual hashes may differ.  [default: 6]",
)
@click.option(
    "--text-similarity",
    type=click.FloatRange(0.5, 1),
    default=0.8,
    metavar="SHARE",
    help="How similar such texts are at least, from 0.5 to 1.  [default: 0.8]",
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="Build each version again elsewhere, from its builder and its input, and compare bytes.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Look at all shards, also at those that a run before, which was interrupted, has done.",
)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@workers_option
@html_option
@feature_imports_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    versions: tuple[str, ...],
    data_dir: str | None,
    store: str | None,
    trusted_keys: Path | None,
    fast: bool,
    deep: bool,
    near_duplicates: bool,
    image_distance: int,
    text_similarity: float,
    rebuild: bool,
    restart: bool,
    strict: bool,
    workers: int | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Look whether prepared versions are what their manifests say they are.

    Without more, each shard is read and its SHA-256 compared; of a shard that differs the damaged
    record is named. Nothing is changed. Exits with 1 if there are errors. If it is interrupted, the
    same command goes on with the shards that were not looked at. If the project has a lock, a
    version that it locks must have the bytes that are locked.

    With --from, releases in a store are looked at: each is brought to a temporary directory first.

    With --rebuild, whoever has the builder and its input proves that the version is what they make.

    Example: my-datasets verify digits --deep --rebuild
    """
    if fast and deep:
        raise click.UsageError("--fast reads no shard, --deep all of them: give one of the two")
    if near_duplicates and not deep:
        raise click.UsageError("--near-duplicates takes examples apart: give --deep, too")
    if store is not None and rebuild:
        raise click.UsageError("--rebuild is for versions that are here: pull it, then verify it")
    from my_datasets.resolving.lock import Lock
    from my_datasets.resolving.resolve_prepared import version_dir
    from my_datasets.verification.near_duplicates.check import NearDuplicates
    from my_datasets.verification.report import Level
    from my_datasets.verification.verifier import verify

    lock = Lock.find()
    # One in the environment is for stores, and says nothing of what was built here.
    source = context.get_parameter_source("trusted_keys")
    is_needed = source is not None and source.name == "COMMANDLINE"
    near = NearDuplicates(image_distance, text_similarity) if near_duplicates else None
    level = Level.FAST if fast else Level.DEEP if deep else Level.BYTES
    reports = []
    for one in versions:
        with contextlib.ExitStack() as stack:
            if store is not None:
                path = stack.enter_context(_brought(one, store, trusted_keys, shown=not as_json))
                resume_dir = None  # what is brought anew was not looked at before
            else:
                path, resume_dir = version_dir(one, data_dir), _resume_dir()
            tell = stack.enter_context(_bar(path, shown=not (as_json or fast)))
            if resume_dir is not None and not fast:
                stack.enter_context(interruption.with_note("What was verified so far is kept."))
            report = verify(
                path, level=level, workers=workers, report=tell, resume_dir=resume_dir,
                restart=restart, near_duplicates=near, lock=lock,
            )  # fmt: skip
        if rebuild and any(issue.code in _NOT_TO_BE_REBUILT for issue in report.issues):
            note = "whether it is built again alike: what it is cannot be read"
            report = dataclasses.replace(report, not_checked=(*report.not_checked, note))
        elif rebuild:
            again = _rebuilt(path)
            report = dataclasses.replace(report, issues=(*report.issues, *again), was_rebuilt=True)
        reports.append(_with_signer(report, trusted_keys, store, is_needed=is_needed))
        if not as_json:
            _show(reports[-1])
    if html:
        from my_datasets.catalog.reports import verification_page

        write_page(html, verification_page(reports))
    if as_json:
        print_json([report.to_json() for report in reports])
    if any(not report.is_good or (strict and report.issues) for report in reports):
        context.exit(1)


def _with_signer(
    report: "Report", trusted_keys: Path | None, store: str | None, *, is_needed: bool
) -> "Report":
    """Returns a report that says who signed the version, if that is to be checked.

    Args:
      report: What was found.
      trusted_keys: A file of public keys; None for those that are configured for the store.
      store: The store that it comes from; None if it is here.
      is_needed: Whether a version without a signature is wrong.
    """
    from my_datasets.publishing.model.trust import check_signed, keys_for

    keys = trusted(trusted_keys) or (keys_for(store) if store is not None else None)
    if keys is None:
        return report
    found = check_signed(Path(report.path), keys)
    if not is_needed and any(issue.code == "not-signed" for issue in found.issues):
        return report
    return dataclasses.replace(
        report, issues=(*found.issues, *report.issues), signed_by=found.signed_by
    )  # fmt: skip


@contextlib.contextmanager
def _brought(
    reference: str, store: str, trusted_keys: Path | None, *, shown: bool
) -> Iterator[Path]:
    """Gives the directory of a release that was brought here only to look at it."""
    from my_datasets.publishing.puller import pull

    keys = trusted(trusted_keys)
    with tempfile.TemporaryDirectory(prefix="my_datasets_verify-") as directory:
        with progress(shown=shown) as tell:
            done = pull(reference, store, directory, use_lock=False, keys=keys, report=tell)
        yield done.path


def _resume_dir() -> Path | None:
    """Returns where interrupted runs leave what they have found; None if there is no such place."""
    return cache_dir("verify")


def _rebuilt(path: Path) -> "list[Issue]":
    """Returns where a version is another one when it is built again."""
    quiet_tensorflow()
    from my_datasets.builders.find_builder import builders_from_code
    from my_datasets.metadata.dataset_info import Declared
    from my_datasets.metadata.manifest import Manifest
    from my_datasets.verification.rebuild import compare, rebuild

    reference = Declared.read(path).name
    levels = 3 if "/" in reference else 2
    downloads = path.resolve().parents[levels - 1] / "downloads"
    said = Manifest.read(path)
    # Beside it, where there is room for it, and stdout stays ours.
    with (
        tempfile.TemporaryDirectory(prefix=f".{path.name}.rebuilt-", dir=path.parent) as directory,
        contextlib.redirect_stdout(sys.stderr),
    ):
        (builder,) = builders_from_code(reference, data_dir=directory)
        again = rebuild(builder, path, download_dir=downloads)
        return list(compare(said.content if said else None, again))


@contextlib.contextmanager
def _bar(path: Path, *, shown: bool) -> "Iterator[Callable[[VerifyProgress], None]]":
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(),
               TimeRemainingColumn())  # fmt: skip
    out = error_console()
    with Progress(
        *columns, console=out, transient=True, disable=not (shown and out.is_terminal)
    ) as bar:
        task = bar.add_task(path.name, total=None)

        def tell(looked: "VerifyProgress") -> None:
            bar.update(task, completed=looked.done, total=looked.total)

        yield tell


def _show(report: "Report") -> None:
    out = console()
    counts = [(kind, sum(i.severity.value == kind for i in report.issues))
              for kind in ("error", "warning")]  # fmt: skip
    said = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts if n)
    looked = {
        "fast": "metadata and sizes", "bytes": "every byte", "deep": "every byte and example"
    }[report.level.value]  # fmt: skip
    again = ", built again" if report.was_rebuilt else ""
    if report.resumed:
        again += f", {report.resumed:,} shards by the run before"
    out.print(
        bold(report.name),
        f": {said or 'good'} ({looked} of "
        f"{report.examples:,} examples, {human_size(report.bytes)}, {report.seconds:.1f} s{again})",
        sep="",
        soft_wrap=True,
    )
    for issue in report.issues:
        out.print(str(issue), soft_wrap=True, markup=False)
    if report.signed_by is not None:
        out.print(f"signed by {report.signed_by}", soft_wrap=True, markup=False)
    elif not report.issues:
        recorded = "metadata and sizes" if report.level.value == "fast" else "bytes"
        told = f"{recorded} as recorded; not who recorded them: see --trusted-keys"
        out.print(told, soft_wrap=True, markup=False)
    for note in report.not_checked:
        out.print(f"not checked: {note}", soft_wrap=True, markup=False)
    if report.digest is not None:
        out.print(f"digest {report.digest}", soft_wrap=True)
