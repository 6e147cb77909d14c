"""Metadata of any content: a page, or one that says what is wrong; no error, and no script."""

import json
import random
import shutil

import pytest

from my_datasets.catalog.releases import VersionComparer, collect
from my_datasets.catalog.site import write
from my_datasets.metadata import manifest
from my_datasets.metadata.manifest import FILE_NAME
from tests.catalog.markup import HOSTILE
from tests.catalog.test_catalog import pages_of

pytestmark = pytest.mark.faults

VALUES = (
    None, True, 0, -1, 10**400, 1e308, float("nan"), float("inf"), "", [], {}, [[]], {"": None},
    "1e999", "9" * 5000, *HOSTILE,
)  # fmt: skip


def places(value, path=()):
    """Yields the way to each value in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value[:3]) if isinstance(value, list) else items
    for name, one in items:
        yield from places(one, (*path, name))


def mutated(document, rng):
    """Replaces, removes or renames one value."""
    ways = [one for one in places(document) if one]
    if not ways:
        return
    *path, last = rng.choice(ways)
    parent = document
    for name in path:
        parent = parent[name]
    kind = rng.randrange(3)
    if kind == 0:
        parent[last] = rng.choice(VALUES)
    elif kind == 1:
        del parent[last]
    elif isinstance(parent, dict):
        parent[rng.choice(HOSTILE)] = parent.pop(last)
    else:
        parent.append(parent[last])


def put_back(version, name, rng):
    path = version / name
    document = json.loads(path.read_text())
    for _ in range(rng.randrange(1, 4)):
        mutated(document, rng)
    if name == FILE_NAME and rng.random() < 0.9:
        document.pop("seal", None)
        document["seal"] = manifest._seal(document)  # as whoever means no good would
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["dataset_info.json", "features.json", FILE_NAME])
@pytest.mark.parametrize("dataset", ["weights", "shapes"])
def test_mutated_metadata(data_dir, tmp_path, dataset, name):
    rng = random.Random(f"{dataset} {name}")
    for turn in range(20):
        data = tmp_path / f"data{turn}"
        shutil.copytree(data_dir / dataset, data / dataset)
        shutil.copytree(data_dir / "tones", data / "tones")
        for version in (data / dataset).glob("[0-9]*"):
            put_back(version, name, rng)
        site = tmp_path / f"site{turn}"
        done = write(collect(data), site, comparing=VersionComparer(None, workers=1))
        assert "tones" not in done.problems
        assert len(pages_of(site)) == 3
        shutil.rmtree(data)
        shutil.rmtree(site)
