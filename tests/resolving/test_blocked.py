import json

from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.core import utils as tfds_utils

from my_datasets.metadata.version_metadata import VersionMetadata
from my_datasets.resolving.version_select import Blocked

versions = st.sampled_from(["1.0.0", "1.0.1", "2.0.0"])
configs = st.sampled_from(["small", "large"])
reasons = st.none() | st.sampled_from(["", "It is wrong."])
by_version = st.dictionaries(versions, reasons)
by_config = st.dictionaries(versions, st.dictionaries(configs, reasons))


@given(by_version, by_config, versions, st.none() | configs)
def test_it_says_what_tfds_says(of_versions, of_configs, version, config):
    theirs = tfds_utils.BlockedVersions(of_versions, of_configs).is_blocked(version, config)
    ours = Blocked(of_versions, of_configs).reason(version, config)
    assert ours == (theirs.blocked_msg if theirs else None)


NAMED = {"name": "toy", "version": "1.0.0"}


def test_metadata_may_say_it(tmp_path):
    path = tmp_path / "dataset_info.json"
    assert VersionMetadata(tmp_path).blocked_reason is None
    for text, expected in [
        ("{", None), ("[]", None), ("{}", None), (json.dumps({"isBlocked": ""}), None),
        (json.dumps({**NAMED, "isBlocked": "It is wrong."}), "It is wrong."),
    ]:  # fmt: skip
        path.write_text(text)
        assert VersionMetadata(tmp_path).blocked_reason == expected
