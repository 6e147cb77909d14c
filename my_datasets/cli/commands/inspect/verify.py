"""`my-datasets verify`: checks prepared data against its manifest."""

import contextlib
import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli import options, output
from my_datasets.core import interruption

if TYPE_CHECKING:
    from my_datasets.core.issue import Issue
    from my_datasets.publishing.model.signing import TrustedKeys
    from my_datasets.verification.verifier import Report

# Without these files, the builder is unknown, or its result.
_NOT_TO_BE_REBUILT = frozenset({"missing-metadata", "unreadable-metadata", "unreadable-manifest"})


@click.command("verify")
@click.argument("versions", metavar="[NAME[/CONFIG][:VERSION]|PATH]...", nargs=-1, required=True)
@options.data_dir_option
@options.store_option("--from", reads=True, required=False)
@options.trusted_keys_option
@click.option("--fast", is_flag=True, help="Compare only metadata, file names and sizes.")
@click.option(
    "--deep", is_flag=True, help="Also parse each example, and compare digests of the content."
)
@click.option(
    "--near-duplicates",
    is_flag=True,
    help="With --deep, also find near-duplicate images and texts across splits.",
)
@click.option(
    "--image-distance",
    type=click.IntRange(0, 12),
    default=6,
    metavar="BITS",
    help="Maximum distance of near-duplicate images' 64-bit perceptual hashes.  [default: 6]",
)
@click.option(
    "--text-similarity",
    type=click.FloatRange(0.5, 1),
    default=0.8,
    metavar="SHARE",
    help="Minimum similarity of near-duplicate texts, from 0.5 to 1.  [default: 0.8]",
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="Rebuild each version in a temporary directory, and compare the bytes.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="Verify all shards, even those that an interrupted run has already verified.",
)
@options.strict_option
@options.workers_option
@options.html_option
@options.feature_imports_option
@options.json_option
@click.pass_context
def command(
    context: click.Context,
    versions: tuple[str, ...],
    data_dir: str | None,
    store: str | None,
    trusted_keys: "TrustedKeys | None",
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
    """Check prepared versions against their manifests.

    By default, reads each shard and compares its SHA-256; for a damaged shard, names the damaged
    record. Also compares versions with the project's lock, if there is one. Changes nothing. Exits
    with 1 if there are errors. After an interruption, the same command resumes with the remaining
    shards.

    With --from, verifies releases in a store, after downloading each to a temporary directory.

    With --rebuild, proves that the builder and its input produce exactly this version.

    Example: my-datasets verify digits --deep --rebuild
    """
    if fast and deep:
        raise click.UsageError("--fast and --deep cannot be combined")
    if near_duplicates and not deep:
        raise click.UsageError("--near-duplicates needs --deep")
    if store is not None and rebuild:
        raise click.UsageError("--rebuild is for local versions: pull the release, then verify it")
    from my_datasets.resolving.lock import Lock
    from my_datasets.resolving.resolver import version_dir
    from my_datasets.verification.near_duplicates import NearDuplicates
    from my_datasets.verification.verifier import Level, verify

    lock = Lock.find()
    # Keys in the environment are for stores; local builds need no signature.
    source = context.get_parameter_source("trusted_keys")
    is_needed = source is not None and source.name == "COMMANDLINE"
    near = NearDuplicates(image_distance, text_similarity) if near_duplicates else None
    level = Level.FAST if fast else Level.DEEP if deep else Level.BYTES
    reports = []
    for one in versions:
        with contextlib.ExitStack() as stack:
            if store is not None:
                path = stack.enter_context(_pulled(one, store, trusted_keys, shown=not as_json))
                resume_dir = None  # a new download was never verified before
            else:
                path, resume_dir = version_dir(one, data_dir), output.cache_dir("verify")
            bar = output.progress_bar(shown=not (as_json or fast), in_bytes=True)
            show = stack.enter_context(bar)
            if resume_dir is not None and not fast:
                stack.enter_context(interruption.with_note("Verified shards are kept."))
            report = verify(
                path, level=level, workers=workers, report=show, resume_dir=resume_dir,
                restart=restart, near_duplicates=near, lock=lock,
            )  # fmt: skip
        if rebuild and any(issue.code in _NOT_TO_BE_REBUILT for issue in report.issues):
            note = "whether a rebuild gives the same data: the metadata cannot be read"
            report = dataclasses.replace(report, not_checked=(*report.not_checked, note))
        elif rebuild:
            again = _rebuilt(path)
            report = dataclasses.replace(report, issues=(*report.issues, *again), was_rebuilt=True)
        reports.append(_with_signer(report, trusted_keys, store, is_needed=is_needed))
        if not as_json:
            _show(reports[-1])
    if html:
        from my_datasets.catalog.pages import verification_page

        output.write_page(html, verification_page(reports))
    if as_json:
        output.print_json([report.to_json() for report in reports])
    if any(not report.is_good or (strict and report.issues) for report in reports):
        context.exit(1)


def _with_signer(
    report: "Report", trusted_keys: "TrustedKeys | None", store: str | None, *, is_needed: bool
) -> "Report":
    """Adds the result of checking the version's signature, if keys are given or configured.

    `is_needed` says whether a missing signature is an error.
    """
    from my_datasets.publishing.model.trust import check_signed, keys_for

    keys = trusted_keys or (keys_for(store) if store is not None else None)
    if keys is None:
        return report
    found = check_signed(Path(report.path), keys)
    if not is_needed and any(issue.code == "not-signed" for issue in found.issues):
        return report
    return dataclasses.replace(
        report, issues=(*found.issues, *report.issues), signed_by=found.signed_by
    )  # fmt: skip


@contextlib.contextmanager
def _pulled(
    reference: str, store: str, trusted_keys: "TrustedKeys | None", *, shown: bool
) -> Iterator[Path]:
    """Yields the directory of a temporary copy of a release."""
    from my_datasets.publishing.puller import pull

    with tempfile.TemporaryDirectory(prefix="my_datasets_verify-") as directory:
        with output.transfer_progress(shown=shown) as show:
            done = pull(reference, store, directory, use_lock=False, keys=trusted_keys, report=show)
        yield done.path


def _rebuilt(path: Path) -> "list[Issue]":
    """Rebuilds a version, and returns the differences."""
    output.quiet_tensorflow()
    from my_datasets.builders.find_builder import builders_from_code
    from my_datasets.metadata.dataset_info import Declared
    from my_datasets.metadata.manifest import Manifest
    from my_datasets.verification.rebuild import compare, rebuild

    reference = Declared.read(path).name
    levels = 3 if "/" in reference else 2
    downloads = path.resolve().parents[levels - 1] / "downloads"
    manifest = Manifest.read(path)
    # In the same file system, which probably has enough space. Builders may print to stdout.
    with (
        tempfile.TemporaryDirectory(prefix=f".{path.name}.rebuilt-", dir=path.parent) as directory,
        contextlib.redirect_stdout(sys.stderr),
    ):
        (builder,) = builders_from_code(reference, data_dir=directory)
        again = rebuild(builder, path, download_dir=downloads)
        return list(compare(manifest.content if manifest else None, again))


def _show(report: "Report") -> None:
    out = output.console()
    outcome = {
        "fast": "metadata and sizes", "bytes": "every byte", "deep": "every byte and example"
    }[report.level.value]  # fmt: skip
    again = ", rebuilt" if report.was_rebuilt else ""
    if report.resumed:
        again += f", {report.resumed:,} shards by an earlier run"
    out.print(
        output.bold(report.name),
        f": {output.counted(report.issues) or 'good'} ({outcome} of {report.examples:,} examples, "
        f"{output.human_size(report.bytes)}, {report.seconds:.1f} s{again})",
        sep="",
        soft_wrap=True,
    )
    for issue in report.issues:
        output.echo(str(issue))
    if report.signed_by is not None:
        output.echo(f"signed by {report.signed_by}")
    elif not report.issues:
        recorded = "metadata and sizes" if report.level.value == "fast" else "bytes"
        output.echo(
            f"{recorded} match the manifest; its signature was not checked: see --trusted-keys"
        )
    for note in report.not_checked:
        output.echo(f"not checked: {note}")
    if report.digest is not None:
        out.print(f"digest {report.digest}", soft_wrap=True)
