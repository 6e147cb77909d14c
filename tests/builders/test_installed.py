import pytest

from my_datasets import errors
from my_datasets.builders import installed

DIGITS = "pkg:pypi/scikit-learn#sklearn/datasets/data/digits.csv.gz"


def test_a_file_of_a_distribution_is_found():
    assert installed.locate(DIGITS).read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize(
    "url", ["", "digits.csv", "pkg:pypi/scikit-learn", "pkg:pypi/#x", "https://x/y#z"]
)
def test_a_malformed_url_is_refused(url):
    with pytest.raises(errors.SourceError, match="does not name a file"):
        installed.locate(url)


def test_an_absent_distribution_is_told_with_its_install():
    with pytest.raises(errors.MissingDependencyError, match="pip install no-such-thing-at-all"):
        installed.locate("pkg:pypi/no-such-thing-at-all#a/b")


def test_an_absent_file_is_told_with_the_place():
    with pytest.raises(errors.SourceError, match="without its file sklearn/none"):
        installed.locate("pkg:pypi/scikit-learn#sklearn/none")


def test_a_changed_file_is_told_with_both_checksums(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(b"changed")
    with pytest.raises(errors.ChecksumError) as caught:
        installed.verify(path, DIGITS, size=3, sha256="0" * 64, checksums=tmp_path / "x.tsv")
    message = str(caught.value)
    assert "Expected" in message
    assert "3 bytes, SHA-256 000000" in message
    assert "Found: 7 bytes, SHA-256 d67e2e94" in message
    assert "x.tsv" in message
    assert "--force-reinstall scikit-learn" in message
