"""`my-datasets lock`: pins a project's references to exact versions and contents."""

from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from my_datasets.cli.output import console, data_dir_option, json_option, print_json
from my_datasets.core.reference import DatasetReference
from my_datasets.core.versioning import Version
from my_datasets.errors import LockError, explain

if TYPE_CHECKING:
    from my_datasets.core.lock import Lock, Locked


@click.command("lock")
@click.argument("references", metavar="[NAME[/CONFIG][:VERSION]]...", nargs=-1)
@data_dir_option
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), default=Path("datasets.lock"),
    show_default=True, metavar="FILE", help="The lock.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Only compare what is prepared with the lock.")
@json_option
def command(
    references: tuple[str, ...], data_dir: str | None, file: Path, check: bool, as_json: bool
) -> None:
    """Write down which exact version, with which content, each reference means.

    References are written as in code: digits:1.*.* is another one than digits. Those in the lock
    stay there; without any, all in it are looked up anew. From then on load, pipeline, source and
    so on give that version in this directory and those below it, and refuse any other data.

    Example: my-datasets lock digits:1.*.* cats_and_dogs
    """
    from my_datasets.core.lock import Lock

    old = Lock.read(file) if file.exists() else Lock(file)
    wanted = [str(DatasetReference.parse(one)) for one in references] or list(old.datasets)
    if not wanted:
        raise LockError(
            explain(
                f"There is nothing in {file} yet.",
                mend="name references as they are written in code: my-datasets lock digits:1.*.*",
            )
        )
    if check:
        for one in wanted:
            _check(old, DatasetReference.parse(one), data_dir)
        found = {one: old.datasets[one] for one in wanted}
    else:
        found = {one: _looked_up(one, data_dir) for one in wanted}
        Lock(file, {**old.datasets, **found}).write()
    if as_json:
        print_json({"file": str(file), "datasets": Lock(file, found).to_json()})
        return
    for text, locked in found.items():
        config = f"{locked.config}:" if locked.config else ""
        console().print(
            f"{text} is {config}{locked.version}, digest {locked.digest}", soft_wrap=True
        )


def _looked_up(text: str, data_dir: str | None) -> "Locked":
    """Returns what a reference means now: the highest prepared version."""
    from my_datasets.core.declared import Declared
    from my_datasets.core.lock import Locked
    from my_datasets.core.manifest import Manifest
    from my_datasets.input_pipeline.prepared import folder_of

    path = folder_of(text, data_dir, to_use=True)
    manifest = Manifest.read(path)
    name, _, version_text = Declared.read(path).name.partition(":")
    version = Version.parse(version_text)
    if manifest is None or manifest.content is None or version is None:
        raise LockError(
            explain(
                f"{path} has no digest to be locked to.",
                mend=f"my-datasets adopt {path} notes what is in it now",
            )
        )
    return Locked(name.partition("/")[2] or None, version, manifest.content.digest)


def _check(lock: "Lock", reference: DatasetReference, data_dir: str | None) -> None:
    from my_datasets.input_pipeline.prepared import folder_of

    if str(reference) not in lock.datasets:
        raise LockError(
            explain(
                f"{str(reference)!r} is not in {lock.path}.", mend=f"my-datasets lock {reference}"
            )
        )
    path = folder_of(lock.exact(reference), data_dir, to_use=True)
    lock.check(reference, path, has_shards=True)
