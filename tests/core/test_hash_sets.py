"""Duplicates and pieces of many hashes, against Python's own dicts and sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from my_datasets.core.hash_sets import DuplicateHashes, HashFiles, pieces

# Few different hashes, so that many occur again; some differ in their last byte only, or end in
# zeros, which NumPy's byte strings leave out.
_HASHES = [
    bytes([first]) + bytes(30) + bytes([last]) for first in (0, 1, 127, 255) for last in (0, 1)
]
_collections = st.lists(st.lists(st.sampled_from(_HASHES), max_size=8), max_size=4)


def arrays(parts):
    return [np.frombuffer(b"".join(one), np.uint8).reshape(-1, 32) for one in parts]


@given(_collections, st.integers(0, 10))
def test_duplicates(parts, most):
    places = {}
    for place, one in enumerate(one for some in parts for one in some):
        places.setdefault(one, []).append(place)
    again = sorted(some for some in places.values() if len(some) > 1)
    found = DuplicateHashes.of(arrays(parts), most)
    assert found.different == len(again)
    assert found.copies == sum(len(some) - 1 for some in again)
    assert found.places == [(some[0], some[1]) for some in again][:most]


@given(_collections, _collections, st.integers(1, 2000))
def test_pieces_have_each_hash_once_and_the_same_range(first, second, at_once):
    seen = ([], [])
    edge = b""
    for some in pieces(arrays(first), arrays(second), at_once=at_once):
        texts = [text for part in some for text in part.texts.tolist()]
        assert all(edge <= text for text in texts)
        edge = max([edge, *texts])
        for part, found in zip(some, seen, strict=True):
            found += zip(part.places.tolist(), part.texts.tolist(), strict=True)
    for parts, found in zip((first, second), seen, strict=True):
        whole = [one.rstrip(b"\0") for some in parts for one in some]
        assert sorted(found) == list(enumerate(whole))


def test_files_of_hashes(tmp_path):
    files = HashFiles()
    for number, count in enumerate((3, 0, 5)):
        path = tmp_path / str(number)
        path.write_bytes(bytes(range(32)) * count)
        files.append(path)
    assert files.hashes == 8
    assert [one.shape for one in files] == [(3, 32), (0, 32), (5, 32)]
    assert files[1:].hashes == 5
    assert DuplicateHashes.of(files, 1).copies == 7
