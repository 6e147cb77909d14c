"""Connects a builder to the Beam engine; imports Beam only if it is needed."""

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow_datasets as tfds

from my_datasets.builders import build_job
from my_datasets.builders.manifest_writer import Findings
from my_datasets.building.options import BuildOptions, Job, SplitResult
from my_datasets.comparison import examine
from my_datasets.comparison.examine import Examination

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.runners.runner import PipelineResult

    from my_datasets.building.engines.beam.engine import Driver, Submission, Workspace


@dataclass(frozen=True)
class WorkspaceLocation:
    """Where workers and the building process exchange files."""

    place: "Workspace"  # the directory or bucket
    # Raises if another process may be building the version by now.
    check: Callable[[], None] = lambda: None


class BeamMetadata(tfds.core.BeamMetadataDict):  # type: ignore[misc]
    """TFDS's metadata dict for values that a pipeline computes, kept in the work directory.

    TFDS's own `BeamMetadataDict` keeps them in a local temporary folder that it deletes on the
    first save: workers on other machines could not write there, and a build could not be resumed.
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        dict.__init__(self, given)
        # The values that the pipeline computes, as single-element lists, by key.
        self.computed: dict[str, beam.PCollection] = {}

    def __setitem__(self, key: str, item: object) -> None:
        """Sets a value, or a collection that will have one element."""
        import apache_beam as beam

        if not isinstance(item, beam.pvalue.PValue):
            super().__setitem__(key, item)
            return
        if key in self:
            raise ValueError(f"The metadata {key!r} is set twice.")
        self.computed[key] = item | f"metadata_{key}_tolist" >> beam.combiners.ToList()
        dict.__setitem__(self, key, item)

    def save_metadata(self, data_dir: os.PathLike[str]) -> None:
        """Saves the values, without deleting anything."""
        tfds.core.MetadataDict.save_metadata(self, data_dir)


class BeamBuild:
    """Runs a version's build on Beam, if the builder or the options ask for it."""

    def __init__(
        self,
        split_generators: Callable[..., object],
        config: tfds.download.DownloadConfig,
        options: BuildOptions,
    ) -> None:
        """Checks whether the options or the builder require Beam.

        Raises:
          InvalidOptionError: A Beam option is missing, unknown, or would lose examples.
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
        self._pipeline: beam.Pipeline | None = None
        self._driver: Driver | None = None
        # Arguments of `_split_generators` besides the downloads.
        self.arguments: dict[str, beam.Pipeline] = {}
        if self._is_asked_for:
            self._submit()
        if build_job.wants_beam(split_generators):
            self._pipeline = self._submit().pipeline()
            self.arguments = {"pipeline": self._pipeline}

    def is_wanted(self, job: Job, metadata: object) -> bool:
        """Returns whether a job must run on Beam; `metadata` is that of the builder's info."""
        computes = isinstance(metadata, BeamMetadata) and bool(metadata.computed)
        collections = any(item.collection is not None for item in job.inputs)
        return self._is_asked_for or computes or collections

    def build(
        self,
        builder: tfds.core.DatasetBuilder,
        job: Job,
        remote: WorkspaceLocation | None,
        work: Path,
        identity: Mapping[str, object],
        target: Path,
        examination: Examination,
        ended: "Callable[[PipelineResult], None]",
    ) -> list[SplitResult]:
        """Builds all splits of a version and hands over the shards.

        Files are exchanged with workers in `remote`, if it is given and there are workers,
        otherwise in the work directory. `ended` is called with the result of each pipeline that has
        transforms of the builder, whose metadata gets the values that the pipeline computes.
        """
        from my_datasets.building.engines.beam import engine

        where = WorkspaceLocation(engine.SharedDirectory(Path(os.path.abspath(work))))
        if remote is not None and self._submit().preset.has_workers:
            where = remote
        metadata = builder.info.metadata
        computing = metadata if isinstance(metadata, BeamMetadata) else None
        module = type(builder).__module__
        file_format = builder.info.file_format.value
        how = engine.BeamStage(
            submission=self._submit(), pipeline=self._pipeline, ended=ended,
            metadata=None if computing is None else computing.computed,
            place=where.place, check=where.check, identity=identity,
            examine=functools.partial(examine.examine_shard, examination, file_format),
            modules=() if module == "__main__" else (module,), file_format=file_format,
        )  # fmt: skip
        driver = self._driver = engine.opened(job, self._options, how)
        results = engine.build(driver, target)
        if computing is not None:
            computing.update(engine.metadata_of(driver))
        return results

    @property
    def findings(self) -> Findings | None:
        """Fetches what workers found in the shards; None if the build did not run on Beam."""
        if self._driver is None:
            return None
        from my_datasets.building.engines.beam import engine

        return functools.partial(engine.findings, self._driver)

    def close(self) -> None:
        """Closes the connection to the runner."""
        if self._submission is not None:
            self._submission.close()

    def _submit(self) -> "Submission":
        if self._submission is None:
            from my_datasets.building.engines.beam import engine

            self._submission = engine.Submission(
                self._options.beam_options,
                beam_options=self._config.beam_options,
                beam_runner=self._config.beam_runner,
            )
        return self._submission
