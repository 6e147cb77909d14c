import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_datasets.core import naming

from my_datasets.core.reference import DatasetReference
from my_datasets.core.version import VersionPattern
from my_datasets.errors import InvalidReferenceError

names = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
configs = st.none() | st.from_regex(r"[A-Za-z0-9_+\-.]{1,10}", fullmatch=True)
parts = st.none() | st.integers(0, 99)
references = st.builds(
    DatasetReference, names, configs, st.none() | st.builds(VersionPattern, parts, parts, parts)
)


@given(references)
def test_a_reference_reads_back_as_itself(reference):
    assert DatasetReference.parse(str(reference)) == reference


@given(references)
def test_tfds_reads_the_same_parts(reference):
    name, kwargs = naming.parse_builder_name_kwargs(str(reference))
    assert str(name) == naming.camelcase_to_snakecase(reference.name)
    assert kwargs.get("config") == reference.config
    assert kwargs.get("version") == (str(reference.version) if reference.version else None)


@given(st.text(max_size=20))
def test_any_other_text_is_refused_with_a_reason(text):
    try:
        reference = DatasetReference.parse(text)
    except InvalidReferenceError as error:
        message = str(error)
    else:
        message = ""
        assert str(reference) == text
    assert not message or message.splitlines()[-1].startswith("  Fix:")


@pytest.mark.parametrize(
    ("text", "reason", "fix"),
    [
        ("", "it is empty", "'digits'"),
        ("   ", "it is empty", "'digits'"),
        ("digits/", "the config ''", "'digits'"),
        ("digits:", "the version ''", "'digits:*.*.*'"),
        ("digits:1.x", "the version '1.x'", "'digits:1.*.*'"),
        ("digits:v1.2.3", "the version 'v1.2.3'", "'digits:1.2.3'"),
        ("digits:1.2", "the version '1.2'", "'digits:1.2.*'"),
        ("digits:01.2.3", "the version '01.2.3'", "'digits:1.2.3'"),
        ("digits:latest", "the version 'latest'", "'digits:*.*.*'"),
        ("digits/a b:1.0.0", "the config 'a b'", "'digits/config'"),
        ("my-digits", "the name 'my-digits'", "my-datasets list"),
        ("/etc/passwd", "the name ''", "my-datasets list"),
    ],
)
def test_the_error_names_the_part_and_the_remedy(text, reason, fix):
    with pytest.raises(InvalidReferenceError) as caught:
        DatasetReference.parse(text)
    first, *_, last = str(caught.value).splitlines()
    assert reason in first
    assert last.strip().startswith("Fix:")
    assert fix in last
