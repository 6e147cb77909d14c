"""Shows the progress of a build with TFDS's tqdm bar, unless the user disabled it."""

from typing import Any

from tensorflow_datasets.core import utils

from my_datasets.building.progress import BuildProgress


class ProgressBar:
    """Shows a build's progress; `tfds.disable_progress_bar()` also disables it."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""
        self._shown = 0

    def __call__(self, progress: BuildProgress) -> None:
        """Updates the bar."""
        if progress.stage != self._stage:
            self.close()
            self._stage, self._shown = progress.stage, 0
            in_bytes = progress.expected_bytes is not None
            self._bar = utils.tqdm(
                total=progress.expected_bytes if in_bytes else None,
                desc=f"{progress.stage.capitalize()} examples",
                unit="B" if in_bytes else " examples",
                unit_scale=True,
                leave=False,
            )
        done = progress.bytes if progress.expected_bytes is not None else progress.examples
        self._bar.set_postfix_str(f"{progress.split} {progress.units_done}/{progress.units} units")
        self._bar.update(done - self._shown)
        self._shown = done

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
