"""Every protected name of TFDS that we touch: a TFDS release that changes one fails here."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import dataset_builder, dataset_info, registered
from tensorflow_datasets.core.download import download_manager
from tensorflow_datasets.testing import dataset_builder_testing

# What an author of a builder implements, and what TFDS documents for it.
AUTHORS = {"_info", "_split_generators", "_generate_examples", "_build_pcollection"}

OVERRIDDEN = {
    "_build_data_dir",
    "_checksums_path",
    "_download_and_prepare",
    "_generate_examples",
    "_log_download_bytes",
    "_log_download_done",
    "_pick_version",
}
READ = {
    "_get_filename_template",
    "_make_download_manager",
    "_metadata",
    "_original_state",
    "_process_pipeline_result",
    "_recorded_url_infos",
}
SEAMS = {Path("my_datasets/builders/base.py"), Path("my_datasets/resolving/registry.py")}
REGISTRY = {"_DATASET_REGISTRY", "_ABSTRACT_DATASET_REGISTRY"}


@pytest.mark.parametrize("name", sorted(OVERRIDDEN))
def test_tfds_has_what_we_override(name):
    assert inspect.getattr_static(tfds.core.GeneratorBasedBuilder, name, None) is not None


def test_picking_a_version_raises_as_we_expect(tmp_path):
    from tests.builders.toy import ToyNumbers

    builder = ToyNumbers(data_dir=tmp_path)
    with pytest.raises(AssertionError):
        tfds.core.GeneratorBasedBuilder._pick_version(builder, "9.9.9")


def test_builders_keep_their_arguments(tmp_path):
    from tests.builders.toy import ToyNumbers

    builder = ToyNumbers(data_dir=tmp_path, version="1.0.0")
    assert builder._original_state == {
        "data_dir": str(tmp_path),
        "config": None,
        "version": "1.0.0",
    }


def test_shards_are_named_by_a_template(tmp_path):
    from tests.builders.toy import ToyNumbers

    template = ToyNumbers(data_dir=tmp_path)._get_filename_template("train")
    path = template.sharded_filepath(shard_index=1, num_shards=2)
    assert path.name == "toy_numbers-train.tfrecord-00001-of-00002"


def test_an_info_keeps_the_metadata_that_it_is_given(tmp_path):
    from tests.builders.toy import ToyNumbers

    info = ToyNumbers(data_dir=tmp_path).info
    info._metadata = tfds.core.MetadataDict(a=1)
    assert info.metadata == {"a": 1}


def test_a_builder_is_given_the_result_of_its_pipeline():
    method = tfds.core.GeneratorBasedBuilder._process_pipeline_result
    assert list(inspect.signature(method).parameters) == ["self", "pipeline_result"]


def test_the_registry_maps_names_to_classes():
    assert isinstance(registered._DATASET_REGISTRY, dict)
    assert isinstance(registered._ABSTRACT_DATASET_REGISTRY, dict)


def protected_names(source: Path) -> set[str]:
    """Protected attributes of other objects, and protected methods of builders, in a file."""
    tree = ast.parse(source.read_text("utf-8"))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own |= {  # what a class of the file keeps in its own objects
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_")
    }
    return {name for name in names if not name.startswith("__")} - own


def test_only_the_seam_touches_them(root):
    for source in sorted((root / "my_datasets").rglob("*.py")):
        protected = {name for name in protected_names(source) if hasattr_tfds(name)}
        if source.relative_to(root) in SEAMS:
            assert protected <= OVERRIDDEN | READ | REGISTRY | AUTHORS
        else:
            assert protected <= AUTHORS | TEST_CASE, source


# TFDS's test case offers no public way to its dummy data and to a builder.
TEST_CASE = {
    "_get_dl_extract_result",
    "_get_dl_download_result",
    "_get_dl_extract_only_result",
    "_get_dl_download_kaggle_result",
    "_download_checksums",
    "_make_builder",
}


@pytest.mark.parametrize("name", sorted(TEST_CASE))
def test_tfds_test_case_has_what_ours_uses(name):
    assert hasattr(tfds.testing.DatasetBuilderTestCase, name)


# Every protected word in the sources of TFDS that we stand on, attributes of instances included.
TFDS_WORDS = {
    word
    for module in (
        dataset_builder,
        dataset_info,
        download_manager,
        dataset_builder_testing,
        registered,
    )
    for word in re.findall(r"\b_[a-zA-Z]\w*", inspect.getsource(module))
}


def hasattr_tfds(name: str) -> bool:
    return name in TFDS_WORDS


def test_every_protected_method_that_base_defines_is_listed(root):
    tree = ast.parse((root / "my_datasets/builders/base.py").read_text("utf-8"))
    (builder,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    defined = {node.name for node in builder.body if isinstance(node, ast.FunctionDef)}
    assert {name for name in defined if hasattr_tfds(name)} - {
        "__init_subclass__",
        "download_and_prepare",
    } == OVERRIDDEN
