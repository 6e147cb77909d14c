"""`Builder`, the base class of all builders in this package, and the seam to TFDS's internals.

Every protected TFDS name that it uses is listed in `tests/builders/test_seam.py`, so an
incompatible TFDS release fails that test and nothing else.
"""

import dataclasses
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core import file_adapters, registered
from tensorflow_datasets.core.dataset_info import license_path
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.core.utils import file_utils

from my_datasets import resources
from my_datasets.builders import (
    build_job,
    code_fingerprint,
    download_manager,
    from_directory,
    manifest_writer,
    on_beam,
    remote_build,
)
from my_datasets.builders.build_job import ProgressBar
from my_datasets.builders.code_fingerprint import fingerprint
from my_datasets.builders.download_manager import DownloadPlan
from my_datasets.builders.encode.scalar_columns import check_readable
from my_datasets.builders.remote_build import PrepareOptions
from my_datasets.builders.source_code import source_file
from my_datasets.building import staging
from my_datasets.building.engines import local
from my_datasets.building.journal import Journal
from my_datasets.building.options import BuildOptions
from my_datasets.building.units import Generator, Units
from my_datasets.comparison import diff
from my_datasets.core import interruption
from my_datasets.core.logs import get_logger
from my_datasets.core.reference import reference_to
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import (
    BuilderError,
    DataDirError,
    DuplicateBuilderError,
    OverwriteError,
    SourceError,
)
from my_datasets.metadata import layout
from my_datasets.resolving import version_select
from my_datasets.resolving.version_select import DeclaredVersions
from my_datasets.statistics.constraints import Constraint
from my_datasets.storage import addresses, disk_space

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow_datasets.core import data_sources

_LOGGER = get_logger(__name__)


class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """A TFDS `GeneratorBasedBuilder` with safe, reproducible builds.

    Write `_info`, `_split_generators` and `_generate_examples` exactly as for TFDS. In addition:

    * Only one process builds a version at a time; others wait, then use the result.
    * Overwriting builds the new version next to the old one and then swaps them in one step: the
      old version stays readable until then and survives any failure.
    * This package's engine encodes, sorts and writes the examples: in several processes if the
      input is declared as `units`, sorted on disk, and always to the same bytes.
    * A killed build is resumed; intermediate files that can no longer be used are removed.
    * Prepared data records the code that built it; data built by different code is refused.
    * Checksums of this package's datasets live in the top-level `checksums/<name>.tsv`.
    * Mistakes raise `MyDatasetsError`s that say how to fix them.
    """

    def __init_subclass__(cls, skip_registration: bool = False, **kwargs: object) -> None:
        """Registers the builder with TFDS under its name.

        Raises:
          DuplicateBuilderError: A builder of that name from another file is already registered.
        """
        try:
            super().__init_subclass__(skip_registration=skip_registration, **kwargs)
        except ValueError:
            # Beam sends a class to workers by value and creates it without its methods at first, so
            # TFDS treats it as abstract.
            registries = (registered._DATASET_REGISTRY, registered._ABSTRACT_DATASET_REGISTRY)
            registry = next((one for one in registries if cls.name in one), None)
            if registry is None:
                raise
            twin = registry[cls.name]
            is_copy = inspect.isabstract(cls) and registry is registries[0]
            if is_copy and (source_file(twin), twin.__name__) == (source_file(cls), cls.__name__):
                return  # the original is already registered
            if (source_file(twin), twin.__qualname__) != (source_file(cls), cls.__qualname__):
                raise DuplicateBuilderError(
                    f"Two builders are called {cls.name!r}.",
                    f"Registered first: {_described(twin)}",
                    f"Registered then: {_described(cls)}",
                    fix="rename one of them; the name comes from the module "
                    "<name>_dataset_builder.py or from the class",
                ) from None
            # The same file under two module names, or reloaded: use the latest code.
            registry[cls.name] = cls

    # Those of SUPPORTED_VERSIONS that this code can still build; TFDS can only load them.
    BUILDABLE_VERSIONS: ClassVar[Sequence[tfds.core.Version]] = ()

    # What to do with invalid examples unless the build options say otherwise: `fail`, or
    # `quarantine` for a source known to contain some.
    ON_ERROR: ClassVar[str] = "fail"

    # Alternative addresses for downloads, tried when an address fails; keyed by the address, or by
    # a prefix shared by several addresses.
    MIRRORS: ClassVar[Mapping[str, Sequence[str]]] = {}

    # Constraints on the values of features, by feature name: a build that violates one fails.
    CONSTRAINTS: ClassVar[Mapping[str, Constraint]] = {}

    # The version being replaced; an overwriting build keeps its unfinished work next to it.
    _replaces: Path | None = None
    # Where workers exchange files when a version is built for an object store.
    _workspace: "on_beam.WorkspaceLocation | None" = None
    _build_options: BuildOptions = BuildOptions()

    def __init__(self, *, data_dir: epath.PathLike | None = None, **kwargs: object) -> None:
        """Creates the builder, as TFDS does.

        Args:
          data_dir: The data directory; TFDS's default if None.
          **kwargs: TFDS's other arguments: `config`, `version`, `file_format`.

        Raises:
          DataDirError: It is in an object store for which TensorFlow has no file system.
          InvalidOptionError: It is neither a path nor the address of an object store.
        """
        if data_dir is not None:
            data_dir = addresses.path_or_address(
                data_dir, "data_dir", (*addresses.BY_TENSORFLOW, "s3")
            )
            if data_dir.startswith("s3://"):
                raise DataDirError(
                    f"{data_dir} cannot be the data directory of a builder: TensorFlow cannot read "
                    "it.",
                    fix=f"build with my-datasets build --data-dir {data_dir}, or with a builder "
                    f"that has a local data_dir and BuildOptions(destination={data_dir!r}); read "
                    f"with my_datasets.pipeline(..., data_dir={data_dir!r})",
                )
        super().__init__(data_dir=data_dir, **kwargs)

    def units(self, generate: Generator, items: Iterable[object]) -> Units:
        """Declares a split's input as units, processed in parallel and resumed individually.

        Return it from `_split_generators` instead of a generator:
        `{"train": self.units(self._generate_examples, paths)}`.

        Args:
          generate: Called with one item; yields `(key, example)` pairs, or Arrow record batches:
            `(name of the key column, batch)` or `(array of keys, batch)`. It may run in another
            process, so it must not rely on state from earlier calls.
          items: What each unit is generated from: a path, a range of rows, ...
        """
        return Units(generate, list(items))

    def embedded_file(self, name: str) -> epath.Path:
        """Returns a source file from the builder's own folder after verifying its checksum.

        Args:
          name: The file's name. In the checksums file, the line that ends with this name gives the
            file's origin instead of a download URL.

        Raises:
          SourceError: The file is missing, or its checksum is not recorded.
          ChecksumError: The file's size or SHA-256 differs from the recorded one.
        """
        records = [info for info in (self.url_infos or {}).values() if info.filename == name]
        source = source_file(type(self))
        if source is None or not records:
            raise SourceError(
                f"The builder of {self.name!r} reads {name} without a recorded checksum.",
                fix=f"add a line 'origin<TAB>size<TAB>sha256<TAB>{name}' to {self._checksums_path}",
            )
        path = source.parent / name
        download_manager.verify_embedded(
            path,
            size=int(records[0].size),
            sha256=records[0].checksum,
            recorded_in=str(self._checksums_path),
        )
        return epath.Path(path)

    def download_and_prepare(
        self,
        *,
        download_dir: epath.PathLike | None = None,
        download_config: tfds.download.DownloadConfig | None = None,
        file_format: str | file_adapters.FileFormat | None = None,
        permissions: file_utils.Permissions | None = None,
        build_options: BuildOptions | None = None,
    ) -> None:
        """Builds the version if it does not exist, or rebuilds it if the download mode overwrites.

        Resumes an unfinished build of the same version.

        Args:
          download_dir: Where downloads are cached; by default `<data_dir>/downloads`.
          download_config: TFDS's download and generation options.
          file_format: The format of the shards; by default TFRecord.
          permissions: Permissions of the created files and directory; TFDS's default if None.
          build_options: Processes, memory, splits and how to handle invalid examples.

        Raises:
          DiskFullError: The file system is full; no partial version is left behind.
          DataDirNotWritableError: The data directory is not writable.
          IncompleteVersionError: The version's directory exists but does not contain a complete
            version.
          OverwriteError: The version to overwrite is in an object store, or the dataset's folder is
            a link that leads out of the data directory.
          StaleDataError: The version was prepared by different code, or with limits.
          VersionBlockedError: The version is blocked.
          VersionNotBuildableError: The current code can only load the version.
          KeyboardInterrupt: Ctrl-C; a note says what is kept. SIGTERM raises `SystemExit` with 143
            if the program does not handle it, after stopping worker processes and deleting
            temporary files.
          MyDatasetsError: The builder or its input is invalid; see `my_datasets.errors`.
        """
        how = build_options or BuildOptions()
        how = self._build_options = dataclasses.replace(
            how, on_error=how.on_error or self.ON_ERROR, report=how.report or ProgressBar()
        )
        if download_dir is not None:
            download_dir = addresses.path_or_address(download_dir, "download_dir")
        options: PrepareOptions = {
            "download_dir": download_dir,
            "download_config": download_config or tfds.download.DownloadConfig(),
            "file_format": file_format,
        }
        if permissions is not None:
            options["permissions"] = permissions
        overwrite = options["download_config"].download_mode.overwrite_dataset
        version_select.check_not_blocked(self)
        if overwrite or not self.data_path.exists():
            version_select.check_buildable(self)
        is_remote = addresses.is_remote(self.data_dir)
        url = how.destination
        if url is not None or is_remote:
            if is_remote and not overwrite and layout.is_prepared(self.data_path):
                super().download_and_prepare(**options)
                return
            if not is_remote:
                options["download_dir"] = download_dir or self.data_dir_root / "downloads"
            how = dataclasses.replace(how, destination=None)
            with interruption.raising(), interruption.with_note("Finished work is kept."):
                remote_build.build(self, url or os.fspath(self.data_dir_root), options, how)
            return
        version_dir = Path(self.data_dir)
        if overwrite and version_dir.exists():
            staging.require_inside(version_dir, Path(self.data_dir_root))
        if version_dir.exists() and not overwrite:
            # Metadata updates also get here. Takes no lock: the data may be on a read-only disk.
            staging.remove_leftovers(version_dir)
            from_directory.check_whole(version_dir, reference_to(self))
            code_fingerprint.refuse_stale(self, options["download_config"], how)
            super().download_and_prepare(**options)
            if options["download_config"].download_mode is tfds.GenerateMode.UPDATE_DATASET_INFO:
                manifest_writer.renew_copy(version_dir)
            return
        with (
            interruption.raising(),
            interruption.with_note(lambda: staging.describe_kept(self._replaces or version_dir)),
            self._missing_dependencies_explained(),
            disk_space.explained(version_dir),
            staging.exclusive(version_dir, overwrite=overwrite),
        ):
            if not version_dir.exists():
                super().download_and_prepare(**options)
                if self._replaces is None:
                    staging.discard_work(version_dir)
                return
            if overwrite:
                self._build_beside_and_swap(version_dir, options)
                self.info.set_file_format(
                    options["file_format"], override=True, override_if_initialized=True
                )
            # Otherwise another process built it while this one waited.
            from_directory.check_whole(version_dir, reference_to(self))
            self.info.read_from_directory(self.data_dir)
            if not overwrite:
                code_fingerprint.refuse_stale(self, options["download_config"], how)

    def _generate_examples(self, *args: Any, **kwargs: Any) -> Any:
        """Yields `(key, example)` pairs; only needed if `_split_generators` calls it."""
        inherited = super()._generate_examples  # of a TFDS builder later in the MRO
        if inherited.__func__ is not tfds.core.GeneratorBasedBuilder._generate_examples:
            return inherited(*args, **kwargs)
        if hasattr(self, "_build_pcollection"):
            return self._build_pcollection(*args, **kwargs)
        raise BuilderError(
            f"The builder of {self.name!r} has no _generate_examples.",
            f"Its source is {source_file(type(self))}.",
            fix="define it, or return sources from _split_generators",
        )

    def as_dataset(
        self, *args: object, **kwargs: object
    ) -> "tf.data.Dataset | dict[str, tf.data.Dataset]":
        """Returns the data as TFDS's `as_dataset` does; warns once if different code prepared it.

        Raises:
          VersionBlockedError: The version is blocked.
        """
        version_select.check_not_blocked(self)
        code_fingerprint.warn_stale_once(self)
        return super().as_dataset(*args, **kwargs)

    def as_data_source(
        self, *args: object, **kwargs: object
    ) -> "data_sources.BaseDataSource | dict[str, data_sources.BaseDataSource]":
        """Returns the data as TFDS's `as_data_source` does; warns and raises like `as_dataset`."""
        version_select.check_not_blocked(self)
        code_fingerprint.warn_stale_once(self)
        return super().as_data_source(*args, **kwargs)

    def _download_and_prepare(
        self,
        dl_manager: tfds.download.DownloadManager,
        download_config: tfds.download.DownloadConfig,
    ) -> None:
        """Builds the splits with this package's engine; TFDS calls it with a temporary data_dir."""
        if download_config.max_examples_per_split == 0:
            return
        check_readable(self.info.features, self.name)
        options = self._build_options
        downloads = download_manager.DownloadManager(
            dl_manager, self._download_plan(dl_manager, download_config, options.mirrors)
        )
        if self.info.file_format not in build_job.ENGINE_FORMATS:
            super()._download_and_prepare(dl_manager=downloads, download_config=download_config)
            return
        manifest_writer.check_constraints(self)
        if type(self.info.metadata) is tfds.core.BeamMetadataDict:
            self.info._metadata = on_beam.BeamMetadata(self.info.metadata)
        beam = on_beam.BeamBuild(self._split_generators, download_config, options)
        generators = self._split_generators(downloads, **beam.arguments)
        inputs = build_job.split_inputs(generators, self)
        job = build_job.job(
            build_job.splits_to_build(inputs, options),
            self.info,
            download_config,
            options,
            self._shard_name,
        )
        made_by = fingerprint(self)
        target = Path(self.data_dir)
        version_dir = self._replaces or target.parent / str(self.version)
        work = staging.work_dir(version_dir)
        identity = build_job.work_identity(
            job,
            download_config,
            options,
            made_by,
            self.info.file_format.value,
            downloads=dl_manager._recorded_url_infos,
            manual_dir=downloads.plan.manual_dir if self.MANUAL_DOWNLOAD_INSTRUCTIONS else None,
        )
        try:
            if beam.is_wanted(job, self.info.metadata):
                examination = manifest_writer.examination(self)
                results = beam.build(
                    self, job, self._workspace, work, identity, target, examination,
                    self._process_pipeline_result,
                )  # fmt: skip
            else:
                with Journal(work, identity, resume=options.resume) as journal:
                    results = local.build(job, options, journal, target)
                examination = manifest_writer.examination(self)
            self.info.set_splits(build_job.split_infos(results, self._get_filename_template))
            # Written now because the manifest records it and the version gate compares it. TFDS
            # writes it all at the end, and saves `info.metadata` only then, once: saving may
            # consume its inputs.
            self.info.download_size = dl_manager.downloaded_size
            self.info.features.save_config(target)
            self.info.write_dataset_info_json(target)
            if licence := self.info.redistribution_info.license:
                license_path(target).write_text(licence)
            content, statistics = manifest_writer.examined(
                target, results, work / "examined", examination, options, beam.findings
            )
        finally:
            beam.close()
            if isinstance(options.report, ProgressBar):
                options.report.close()
        manifest_writer.write_manifest(
            self, target, job.inputs, results, download_config, options,
            dl_manager._recorded_url_infos,
            fingerprint=made_by, content=content, statistics=statistics,
        )  # fmt: skip
        if options.version_gate:
            diff.check_version_gate(
                target, version_dir.parent, DeclaredVersions.of_builder(self).blocked
            )

    def record_checksums(
        self,
        *,
        download_dir: str | os.PathLike[str] | None = None,
        mirrors: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, checksums.UrlInfo]:
        """Downloads the files of this dataset and records their sizes and SHA-256 hashes.

        Writes them to the checksums file, and keeps the downloads in the cache for the next build.

        Args:
          download_dir: Where downloads are cached; by default `<data_dir>/downloads`.
          mirrors: Addresses to try first, as in `BuildOptions`.

        Returns:
          The recorded entries, by address.

        Raises:
          BuilderError: The builder runs on Beam.
          DownloadError: A file could not be downloaded; files that were downloaded are recorded.
        """
        if build_job.wants_beam(self._split_generators):
            raise BuilderError(
                f"The builder of {self.name!r} runs on Beam: its downloads are only known when it "
                "runs.",
                fix=f"my-datasets build {self.name} --register-checksums",
            )
        config = tfds.download.DownloadConfig()
        manager = self._make_download_manager(download_dir, config)
        plan = self._download_plan(manager, config, mirrors or {})
        recorder = download_manager.ChecksumRecorder(manager, plan)
        try:
            self._split_generators(recorder)
        finally:
            if recorder.found:
                checksums.save_url_infos(self._checksums_path, recorder.found)
        return dict(recorder.found)

    def _download_plan(
        self,
        manager: tfds.download.DownloadManager,
        config: tfds.download.DownloadConfig,
        preferred: Mapping[str, Sequence[str]],
    ) -> DownloadPlan:
        return DownloadPlan(
            dataset=self.name,
            records={**checksums.get_all_url_infos(), **(self.url_infos or {})},
            mirrors=self.MIRRORS,
            preferred=preferred,
            manual_dir=epath.Path(config.manual_dir or manager.download_dir / "manual"),
            at_once=config.override_max_simultaneous_downloads or self.MAX_SIMULTANEOUS_DOWNLOADS,
            verify_ssl=config.verify_ssl,
            force=config.download_mode.force_download,
        )

    def _shard_name(self, split: str, shard: int, number_of_shards: int) -> str:
        template = self._get_filename_template(split_name=split)
        path = template.sharded_filepath(shard_index=shard, num_shards=number_of_shards)
        return str(path.name)

    def _build_beside_and_swap(self, version_dir: Path, options: PrepareOptions) -> None:
        if options["download_config"].max_examples_per_split == 0:
            raise OverwriteError(
                f"{version_dir} is not overwritten with a version that has no examples.",
                "max_examples_per_split=0 only downloads.",
                fix="do not overwrite, or request at least one example",
            )
        with staging.beside(version_dir) as directory:
            # A second builder is needed because this one's `info` describes the data being
            # replaced.
            fresh = self._anew(directory)
            options["download_dir"] = options["download_dir"] or self.data_dir_root / "downloads"
            options["file_format"] = options["file_format"] or self.info.file_format
            fresh._replaces = version_dir
            fresh.download_and_prepare(**options, build_options=self._build_options)
            staging.swap(Path(fresh.data_dir), version_dir)
        # Not earlier: a build killed before the swap can be resumed, losing only the metadata.
        staging.discard_work(version_dir)

    def _anew(self, data_dir: Path) -> "Builder":
        return type(self)(**{**self._original_state, "data_dir": os.fspath(data_dir)})

    @contextmanager
    def _missing_dependencies_explained(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            if not error.name or "." in error.name:
                raise  # an installed package lacks one of its own modules: not ours to explain
            raise missing_dependency(error.name, needed_for=f"building {self.name!r}") from error

    def _pick_version(self, requested_version: str | tfds.core.Version | None) -> tfds.core.Version:
        try:
            _ = self.canonical_version
        except ValueError as error:
            raise BuilderError(
                f"The builder of {self.name!r} has no version.",
                f"Its source is {source_file(type(self))}.",
                fix="add to the class VERSION = tfds.core.Version('1.0.0')",
            ) from error
        declared = DeclaredVersions.of_builder(self)
        if requested_version is not None:
            requested_version = version_select.select_declared(
                self, declared, str(requested_version)
            )
        try:
            return super()._pick_version(requested_version)
        except AssertionError:
            data_dir = self._original_state["data_dir"] or tfds.core.constants.DATA_DIR
            raise version_select.no_such_version(
                self.name, requested_version, declared, data_dir, self.builder_config_name
            ) from None

    def _build_data_dir(self, given_data_dir: str | None) -> tuple[str, str]:
        """Returns the root and the version's directory; checks the metadata TFDS reads next."""
        root, directory = super()._build_data_dir(given_data_dir)
        if not addresses.is_remote(directory):
            from_directory.check_prepared(Path(directory), self.name, str(self.version))
        return root, directory

    @property
    def canonical_version(self) -> tfds.core.Version:
        """The version that TFDS allows to be built: the chosen one, if the code can build it."""
        chosen = getattr(self, "version", None)  # unset while it is being chosen
        return chosen if chosen in self.BUILDABLE_VERSIONS else super().canonical_version

    @tfds.core.utils.classproperty
    @classmethod
    def _checksums_path(cls) -> epath.Path | None:
        source = source_file(cls)
        if source is not None and resources.is_packaged(source):
            return epath.Path(resources.checksums_path(cls.name))
        return super()._checksums_path

    @tfds.core.utils.classproperty
    @classmethod
    def url_infos(cls) -> dict[str, checksums.UrlInfo] | None:
        """The recorded checksums, read on each access because TFDS's cached ones may be stale."""
        path = cls._checksums_path
        return checksums.load_url_infos(path) if path and path.exists() else None

    def _log_download_bytes(self) -> None:
        # TFDS prints here; this package logs, and only its command line prints.
        _LOGGER.info("Building %s into %s", self.info.full_name, self.data_dir)

    def _log_download_done(self) -> None:
        _LOGGER.info("Built %s", self.info.full_name)


def _described(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__} ({source_file(cls) or 'typed in'})"
