"""Some splits of a release: metadata that say no more than what is there."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from my_datasets.core.content import Content
from my_datasets.core.declared import essentials
from my_datasets.core.manifest import Manifest


def only_splits(version_dir: Path, splits: Collection[str], content: Content) -> None:
    """Writes the metadata of a version anew, for some of its splits.

    It is a version of its own kind then, as one that was built with `--splits`: with another
    digest, and an option in its manifest that says why.

    Args:
      version_dir: The directory; its metadata are those of the whole release.
      splits: The splits that stay.
      content: What is in the whole release.
    """
    path = version_dir / "dataset_info.json"
    info = json.loads(path.read_text("utf-8"))
    info["splits"] = [one for one in info["splits"] if one["name"] in splits]
    _write(path, json.dumps(info, indent=2, sort_keys=True))
    made = Manifest.read(version_dir)
    if made is None:
        return
    kept = {name: one for name, one in content.splits.items() if name in splits}
    replace(
        made,
        options={**made.options, "splits": sorted(splits)},
        quarantined={name: n for name, n in made.quarantined.items() if name in splits},
        splits={name: one for name, one in made.splits.items() if name in splits},
        content=Content(content.schema, kept),
        metadata=essentials(version_dir),
        statistics={name: one for name, one in made.statistics.items() if name in splits},
    ).write(version_dir)


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, "utf-8")
    partial.replace(path)
