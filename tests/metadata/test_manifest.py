"""The manifest against its published schema."""

import json
from pathlib import Path

import jsonschema
import pytest
import tensorflow_datasets as tfds

from my_datasets.building.options import BuildOptions
from my_datasets.metadata import manifest
from my_datasets.verification.adopt import adopt
from tests.building.engines import toys
from tests.building.engines.builds import build


@pytest.fixture(scope="module")
def validator():
    root = Path(__file__).resolve().parents[2]
    schema = json.loads((root / "docs" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def of(version_dir):
    return json.loads((version_dir / manifest.FILE_NAME).read_text())


def test_manifests_have_the_published_form(validator, tmp_path):
    validator.validate(of(build(toys.InUnits, tmp_path / "whole")))
    sample = tfds.download.DownloadConfig(max_examples_per_split=9, ignore_duplicates=True)
    validator.validate(of(build(toys.Plain, tmp_path / "sample", config=sample)))
    some = build(toys.InUnits, tmp_path / "some", splits=("train",), on_error="quarantine")
    validator.validate(of(some))
    theirs = toys.ByTfds(data_dir=tmp_path / "theirs")
    theirs.download_and_prepare()
    adopt(Path(theirs.data_dir))
    validator.validate(of(Path(theirs.data_dir)))


def test_the_schema_refuses_what_is_none(validator, tmp_path):
    good = of(build(toys.Plain, tmp_path))
    for change in (
        lambda whole: whole.update(format=1), lambda whole: whole.pop("content"),
        lambda whole: whole.update(more=1), lambda whole: whole["content"].update(digest="abc"),
        lambda whole: whole["content"]["splits"]["train"]["shards"][0].pop("sha256"),
    ):  # fmt: skip
        whole = json.loads(json.dumps(good))
        change(whole)
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(whole)


def test_the_options_of_a_build_are_those_of_the_schema(validator):
    schema = validator.schema["properties"]["options"]["properties"]
    assert BuildOptions(splits=("a",), on_error="quarantine").affecting_data.keys() <= schema.keys()
