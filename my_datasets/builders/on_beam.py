"""A builder's way to the engine on Beam; Beam itself is loaded only if it is wanted."""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow_datasets as tfds

from my_datasets.builders import preparing
from my_datasets.builders.recording import Findings
from my_datasets.building.job import Job, SplitResult
from my_datasets.building.options import BuildOptions
from my_datasets.comparison import examining
from my_datasets.comparison.examining import Wanted

if TYPE_CHECKING:
    from my_datasets.building.engines.beam.driving import Driver
    from my_datasets.building.engines.beam.places import Place
    from my_datasets.building.engines.beam.runners import Submission


@dataclass(frozen=True)
class Where:
    """Where workers and the building process meet.

    Attributes:
      place: The place.
      check: Raises if it may be another process by now that builds the version.
    """

    place: "Place"
    check: Callable[[], None] = lambda: None


class OnBeam:
    """Where the build of a version runs, if it is on Beam.

    Attributes:
      arguments: What `_split_generators` gets beside the downloads: a pipeline if it asks for one.
    """

    def __init__(
        self,
        split_generators: Callable[..., Any],
        config: tfds.download.DownloadConfig,
        options: BuildOptions,
    ) -> None:
        """Looks at what was asked for.

        Args:
          split_generators: The builder's method.
          config: TFDS's options.
          options: Ours.

        Raises:
          InvalidOptionError: An option of Beam's is missing, unknown, or would lose examples.
        """
        self._config = config
        self._options = options
        self._submission: Submission | None = None
        self._is_asked_for = bool(
            options.engine == "beam"
            or options.beam_options
            or config.beam_options is not None
            or config.beam_runner is not None
        )
        self._pipeline: Any = None
        self._driver: Driver | None = None
        self.arguments: dict[str, Any] = {}
        if self._is_asked_for:
            self._submit()
        if preparing.wants_beam(split_generators):
            self._pipeline = self._submit().pipeline()
            self.arguments = {"pipeline": self._pipeline}

    def is_wanted(self, job: Job) -> bool:
        """Returns whether a job is for Beam."""
        return self._is_asked_for or any(item.collection is not None for item in job.inputs)

    def build(
        self, job: Job, elsewhere: Where | None, work: Path, identity: Mapping[str, Any],
        target: Path, module: str, wanted: Wanted,
    ) -> list[SplitResult]:  # fmt: skip
        """Builds all splits of a version, and hands over the shards.

        Args:
          job: What to build.
          elsewhere: Where workers and this process meet, if not in the work directory.
          work: The work directory.
          identity: What the work depends on.
          target: The version's directory on this machine.
          module: The builder's.
          wanted: What workers look for in examples.
        """
        from my_datasets.building.engines.beam import driving, engine
        from my_datasets.building.engines.beam.places import SharedDirectory

        where = Where(SharedDirectory(Path(os.path.abspath(work))))
        if elsewhere is not None and self._submit().preset.has_workers:
            where = elsewhere
        file_format = str(identity["options"]["file_format"])
        how = driving.OnBeam(
            submission=self._submit(), pipeline=self._pipeline,
            place=where.place, check=where.check, identity=identity,
            examine=functools.partial(examining.examine_shard, wanted, file_format),
            modules=() if module == "__main__" else (module,), file_format=file_format,
        )  # fmt: skip
        driver = self._driver = engine.opened(job, self._options, how)
        return engine.build(driver, target)

    @property
    def findings(self) -> Findings | None:
        """What brings what workers found in shards; None if there were none."""
        if self._driver is None:
            return None
        from my_datasets.building.engines.beam import engine

        return functools.partial(engine.findings, self._driver)

    def close(self) -> None:
        """Lets go of the runner."""
        if self._submission is not None:
            self._submission.close()

    def _submit(self) -> "Submission":
        if self._submission is None:
            from my_datasets.building.engines.beam.runners import Submission

            self._submission = Submission(
                self._options.beam_options,
                beam_options=self._config.beam_options,
                beam_runner=self._config.beam_runner,
            )
        return self._submission
