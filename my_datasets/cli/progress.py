"""Shows progress on stderr: a bar on a terminal, lines in a log."""

import contextlib
import time
from collections.abc import Callable, Iterator

from my_datasets.building.progress import BuildProgress
from my_datasets.cli.output import echo, error_console
from my_datasets.core.progress import OnProgress, Progress, ignore

_LOG_EVERY_SECONDS = 10.0


@contextlib.contextmanager
def progress_bar(*, shown: bool = True, in_bytes: bool = False) -> Iterator[OnProgress]:
    """Shows a bar on a terminal, and nothing elsewhere.

    Args:
      shown: Whether to show it at all.
      in_bytes: Whether bytes are counted, rather than examples or datasets.
    """
    from rich import progress as rich

    count = rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn()
    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        count,
        *([rich.TransferSpeedColumn()] if in_bytes else []),
        rich.TimeRemainingColumn(),
    )
    out = error_console()
    if not (shown and out.is_terminal):
        yield ignore
        return
    with rich.Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None)
        last = Progress("", 0, 0)

        def update(now: Progress) -> None:
            nonlocal last
            if now.total != last.total or now.done < last.done:
                bar.reset(task, total=now.total)
            bar.update(task, description=now.stage, completed=now.done)
            last = now

        yield update


@contextlib.contextmanager
def transfer_progress(*, shown: bool) -> Iterator[OnProgress]:
    """Shows the progress of a transfer: a bar on a terminal, lines in a log."""
    if shown and not error_console().is_terminal:
        yield log_lines()
    else:
        with progress_bar(shown=shown, in_bytes=True) as update:
            yield update


def log_lines() -> Callable[[Progress | BuildProgress], None]:
    """Returns what prints a line when a stage begins, then one every ten seconds."""
    stage, told = "", 0.0

    def log(now: Progress | BuildProgress) -> None:
        nonlocal stage, told
        if isinstance(now, Progress) and not now.total:
            return
        at = time.monotonic()
        if now.stage != stage or at - told >= _LOG_EVERY_SECONDS:
            stage, told = now.stage, at
            echo(str(now), err=True)

    return log
