"""Images and texts that are nearly the same in two splits are found, and no others."""

import functools
import io
import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image, ImageEnhance

import my_datasets
from my_datasets import dependencies
from my_datasets.building.options import BuildOptions
from my_datasets.comparison import examine
from my_datasets.errors import InvalidOptionError, MissingDependencyError
from my_datasets.records import index
from my_datasets.verification import near_duplicates as near_pairs
from my_datasets.verification import similarity_hashes
from my_datasets.verification.near_duplicates import NearDuplicates
from my_datasets.verification.verifier import Level, verify

names = (f"near_duplicates_{number}" for number in itertools.count())
PHOTOS = Path("/work/shared/data/images")
MESSAGES = Path("/work/shared/data/text/sms.tsv")
IMAGE = {"image": tfds.features.Image(shape=(None, None, None))}
TEXT = {"text": tfds.features.Text(), "n": np.int64}


def built(directory, features, **splits):
    class Near(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = next(names)

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {name: enumerate(examples) for name, examples in splits.items()}

    builder = Near(data_dir=directory)
    shards = min(2, *map(len, splits.values())) if len(splits) > 1 else 1
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=shards),
        build_options=BuildOptions(workers=1),
    )
    return Path(builder.data_dir)


def looked(path, **options):
    report = verify(path, level=Level.DEEP, workers=1, near_duplicates=NearDuplicates(**options))
    assert report.is_good
    return list(report.issues), list(report.not_checked)


def jpeg(image, quality=90):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    data.seek(0)
    return data


def textured(seed, size=(120, 160)):
    """Returns an image with structure at several scales, as photographs have."""
    rng = np.random.default_rng(seed)
    found = np.zeros((*size, 3))
    for scale in (4, 9, 20):
        part = rng.normal(size=(scale, scale, 3)) * 60 / np.sqrt(scale)
        part = np.clip(part + 128, 0, 255).astype(np.uint8)
        found += np.asarray(Image.fromarray(part).resize(size[::-1], Image.Resampling.BICUBIC))
    return Image.fromarray((found / 3).astype(np.uint8))


COPIES = {
    "compressed": lambda image: jpeg(image, 35),
    "halved": lambda image: jpeg(image.resize((image.width // 2, image.height // 2))),
    "enlarged": lambda image: jpeg(image.resize((image.width * 2, image.height * 2)), 70),
    "lighter": lambda image: jpeg(ImageEnhance.Brightness(image).enhance(1.08)),
    "grey": lambda image: jpeg(image.convert("L")),
}


def as_read(path, split):
    """Returns the examples of a split by the places that a message gives them."""
    found = {}
    source = iter(my_datasets.source(str(path), split=split))
    for shard in sorted(path.glob(f"*-{split}.*-of-?????")):
        for row in range(len(index.read(shard)) - 1):
            found[f"{shard.name}, record {row:,}"] = next(source)
    return found


PAIR = re.compile(r"(\w+): ([^,]+, record [\d,]+), and (\w+): ([^,]+, record [\d,]+) \(([^)]+)\)")


@pytest.mark.parametrize("copy", COPIES)
def test_copies_of_images(tmp_path, copy):
    train = [textured(seed) for seed in range(40)]
    test = [textured(seed) for seed in range(100, 120)]
    path = built(
        tmp_path, {**IMAGE, "seed": np.int64},
        train=[{"image": jpeg(image), "seed": seed} for seed, image in enumerate(train)],
        test=[*({"image": jpeg(image), "seed": 100 + seed} for seed, image in enumerate(test)),
              {"image": COPIES[copy](train[7]), "seed": 7}],
    )  # fmt: skip
    (found,), notes = looked(path)
    assert notes == []
    assert (found.code, found.severity) == ("near-duplicate", "warning")
    assert found.node == "splits train and test, feature image"
    assert found.problem == (
        "1 images of train and 1 of test are near-duplicates of one in the other split."
    )
    ((one, place, other, other_place, said),) = PAIR.findall(found.found)
    assert (one, other) == ("train", "test")
    assert re.fullmatch(r"[0-6] of 64 bits differ", said)
    assert as_read(path, one)[place]["seed"] == as_read(path, other)[other_place]["seed"] == 7


def test_real_photographs_and_their_copies(tmp_path):
    if not PHOTOS.is_dir():
        pytest.skip(f"{PHOTOS} is not there: photographs that may not be in this repository")
    photos = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.iterdir())[:80]]
    small = [photo.resize((photo.width // 2, photo.height // 2)) for photo in photos]
    distinct = built(
        tmp_path / "distinct", IMAGE,
        train=[{"image": jpeg(photo)} for photo in small[:40]],
        test=[{"image": jpeg(photo)} for photo in small[40:]],
    )  # fmt: skip
    assert looked(distinct) == ([], [])
    copied = built(
        tmp_path / "copied", IMAGE,
        train=[{"image": jpeg(photo, 95)} for photo in photos[:20]],
        test=[{"image": jpeg(photo, 40)} for photo in small[10:30]],
    )  # fmt: skip
    (found,), _ = looked(copied)
    assert found.problem.startswith("10 images of train and 10 of test are near-duplicates")
    assert found.found.endswith("; ...")


def test_images_that_are_the_same_with_another_label(tmp_path):
    features = {**IMAGE, "label": np.int64}
    path = built(
        tmp_path, features,
        train=[{"image": jpeg(textured(1)), "label": 0}, {"image": jpeg(textured(2)), "label": 1}],
        test=[{"image": jpeg(textured(1)), "label": 1}, {"image": jpeg(textured(2)), "label": 1}],
    )  # fmt: skip
    issues, _ = looked(path)
    assert [issue.code for issue in issues] == ["leak", "near-duplicate"]
    # What is the same as a whole is told once: as a leak.
    assert len(PAIR.findall(issues[1].found)) == 1
    assert "0 of 64 bits differ" in issues[1].found


def test_images_that_tell_nothing(tmp_path):
    blank = [np.full((64, 64, 3), grey, np.uint8) for grey in (10, 12, 200)]
    small = [np.random.default_rng(i).integers(0, 255, (16, 16, 3), np.uint8) for i in range(3)]
    path = built(
        tmp_path, IMAGE,
        train=[{"image": blank[0]}, {"image": small[0]}, {"image": jpeg(textured(1))}],
        test=[{"image": blank[1]}, {"image": small[1]}, {"image": jpeg(textured(2))}],
    )  # fmt: skip
    issues, notes = looked(path)
    assert issues == []
    (note,) = notes
    assert note == (
        "near-duplicates of feature image: 4 images, which are smaller than 32 x 32 pixels or of "
        "one color"
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_images_of_any_kind(channels, dtype):
    image = np.asarray(textured(3))
    grey = image[:, :, :1]
    of_kind = {1: grey, 3: image, 4: np.concatenate([image, grey], axis=2)}[channels]
    scaled = of_kind.astype(np.uint16) * 257 if dtype == np.uint16 else of_kind
    expected = similarity_hashes.perceptual_hash(of_kind[:, :, :3])
    assert similarity_hashes.perceptual_hash(scaled) == expected


def test_frames_within_sequences(tmp_path):
    features = {"frames": tfds.features.Sequence(tfds.features.Image(shape=(None, None, 3)))}
    path = built(
        tmp_path, features,
        train=[{"frames": [jpeg(textured(1)), jpeg(textured(2))]}, {"frames": []}],
        test=[{"frames": [jpeg(textured(3))]}, {"frames": [jpeg(textured(4), 95),
                                                          jpeg(textured(2), 40)]}],
    )  # fmt: skip
    (found,), _ = looked(path)
    ((_, place, _, other, _),) = PAIR.findall(found.found)
    assert len(as_read(path, "train")[place]["frames"]) == 2
    assert len(as_read(path, "test")[other]["frames"]) == 2


SENTENCES = [
    "Sorry, I'll call you later, I am in a meeting until four o'clock this afternoon.",
    "Congratulations! You have won a prize of 1000 pounds. Call 09061701461 now to claim it.",
    "Are we still on for dinner at the new place by the river on Saturday evening?",
    "The train was late again, so I shall not be home before nine. Do not wait for me.",
    "Could you buy milk, bread and a dozen eggs on your way back from the office, please?",
]
EDITS = {
    "a word": lambda text: text.replace(" on ", " for ").replace("again", "today"),
    "white space and case": lambda text: text.upper().replace(" ", "  \n"),
    "punctuation": lambda text: re.sub(r"[.,!?]", " -- ", text),
    "an ending": lambda text: text + " Bye",
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_texts(tmp_path, edit):
    other = EDITS[edit](SENTENCES[3])
    path = built(
        tmp_path, TEXT,
        train=[{"text": text, "n": n} for n, text in enumerate(SENTENCES)],
        test=[{"text": "Nothing of this is anywhere in the other split, not even a bit.", "n": 9},
              {"text": other, "n": 3}],
    )  # fmt: skip
    (found,), notes = looked(path, text_similarity=0.7)
    assert notes == []
    assert found.node == "splits train and test, feature text"
    ((_, place, _, other_place, said),) = PAIR.findall(found.found)
    assert as_read(path, "train")[place]["n"] == as_read(path, "test")[other_place]["n"] == 3
    similarity = float(said.removeprefix("similarity "))
    assert similarity == pytest.approx(jaccard(SENTENCES[3], other), abs=0.15)


@functools.cache
def runs_of(text):
    plain = " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())
    return frozenset(plain[i : i + 5] for i in range(len(plain) - 4))


def jaccard(one, other):
    """Returns the similarity of two texts, by its definition."""
    return len(runs_of(one) & runs_of(other)) / len(runs_of(one) | runs_of(other))


def messages():
    if not MESSAGES.is_file():
        pytest.skip(f"{MESSAGES} is not there: texts that are not in this repository")
    lines = MESSAGES.read_text("utf-8").splitlines()
    return sorted({line.split("\t")[1] for line in lines if "\t" in line})


def test_all_near_pairs_of_real_messages_are_found(tmp_path):
    """Compared with each compared with each."""
    texts = [text for text in messages() if len(text) > 60][:300]
    rng = np.random.default_rng(0)
    sides = rng.integers(0, 2, len(texts))
    train, test = ([t for t, s in zip(texts, sides, strict=True) if s == side] for side in (0, 1))
    edited = [text[:40] + "x" + text[40:] for text in train[:25]]
    test += edited
    path = built(
        tmp_path, TEXT,
        train=[{"text": text, "n": n} for n, text in enumerate(train)],
        test=[{"text": text, "n": n} for n, text in enumerate(test)],
    )  # fmt: skip
    exact = [[jaccard(a, b) for b in train] for a in test]
    surely = {n for n, row in enumerate(exact) if max(row) > 0.9}
    maybe = {n for n, row in enumerate(exact) if max(row) > 0.65}
    assert len(surely) >= 20
    (found,), _ = looked(path)
    count = int(re.search(r"(\d+) of test are", found.problem)[1])
    assert len(surely) <= count <= len(maybe)


def test_distinct_messages_give_no_alarm(tmp_path):
    texts = [text for text in messages() if len(text) > 60]
    signs = similarity_hashes.SignatureMaker()
    rows = np.array([signs(text.encode()) for text in texts])
    closest = similarity_hashes.similarities
    # Those that nobody would call alike: no other shares half of its runs.
    chosen = [n for n in range(400) if np.sort(closest(rows, rows[n]))[-2] < 0.5]
    assert len(chosen) > 250
    path = built(
        tmp_path, TEXT,
        train=[{"text": texts[n], "n": n} for n in chosen[::2]],
        test=[{"text": texts[n], "n": n} for n in chosen[1::2]],
    )  # fmt: skip
    assert looked(path) == ([], [])


def test_names_are_no_texts(tmp_path):
    kinds = [
        "Adelie penguin (Pygoscelis adeliae) of the Antarctic",
        "Gentoo penguin (Pygoscelis papua) of the Falkland Islands",
    ]
    path = built(
        tmp_path, TEXT,
        train=[{"text": kinds[n % 2], "n": n} for n in range(20)],
        test=[{"text": kinds[n % 2], "n": n} for n in range(20, 30)],
    )  # fmt: skip
    issues, notes = looked(path)
    assert issues == []
    (note,) = notes
    assert note == (
        "near-duplicates of feature text: only 2 of 30 texts are different, so they are treated as "
        "names"
    )


def test_short_texts_and_bytes_that_are_none():
    sign = similarity_hashes.SignatureMaker()
    assert sign(b"too short") is None
    assert sign(b"\xff" * 100) is None
    assert sign(("é, " * 40).encode()) is not None
    assert (sign(SENTENCES[0].encode()) == sign(SENTENCES[0].upper().encode())).all()


def test_long_texts_are_signed_in_parts(monkeypatch):
    text = "".join(f"{n * n:x} " for n in range(3000)).encode()
    whole = similarity_hashes.SignatureMaker()(text)
    monkeypatch.setattr(similarity_hashes, "_AT_ONCE", 100)
    assert similarity_hashes.SignatureMaker()(text).tolist() == whole.tolist()


def test_what_cannot_be_compared_is_said(tmp_path):
    one = built(tmp_path / "one", TEXT, train=[{"text": SENTENCES[0], "n": 0}])
    assert looked(one) == ([], ["near-duplicates: there is only one split"])
    features = {"n": np.int64}
    numbers = built(tmp_path / "two", features, train=[{"n": 1}], test=[{"n": 2}])
    assert looked(numbers) == ([], ["near-duplicates: no feature can be compared"])


@pytest.mark.parametrize("options", [{"image_distance": 13}, {"text_similarity": 0.2}])
def test_options_that_cannot_be(options):
    with pytest.raises(InvalidOptionError):
        NearDuplicates(**options)


def test_without_the_extra(tmp_path, monkeypatch):
    path = built(tmp_path, TEXT, train=[{"text": "a", "n": 1}], test=[{"text": "b", "n": 2}])
    real = similarity_hashes.importlib.util.find_spec
    monkeypatch.setattr(
        similarity_hashes.importlib.util, "find_spec",
        lambda name: None if name == "datasketch" else real(name),
    )  # fmt: skip
    with pytest.raises(MissingDependencyError, match=r"pip install .*imagehash>="):
        looked(path)
    assert "'imagehash>=" in dependencies.install_command("datasketch")


@pytest.mark.parametrize("most", [0, 1, 2, 5, 6, 7, 12])
def test_close_hashes_are_found_as_by_comparing_all(most):
    """Against each compared with each; in every bit, also those at the edges of bands."""
    rng = np.random.default_rng(most)
    one = rng.integers(0, 2**64, 300, np.uint64)
    other = one[rng.integers(0, 300, 400)].copy()
    for bit in range(14):
        flips = rng.integers(0, 64, 400).astype(np.uint64)
        other[bit * 20 :] ^= np.uint64(1) << flips[bit * 20 :]
    bits = np.unpackbits((one[:, None] ^ other[None]).view(np.uint8).reshape(300, 400, 8), axis=2)
    exact = bits.sum(axis=2)
    from my_datasets.verification.near_duplicates import ImageFingerprints

    ours, theirs = (ImageFingerprints.__new__(ImageFingerprints) for _ in range(2))
    ours.hashes, theirs.hashes = one, other
    found = near_pairs.find(
        (300, 400), ours.bands(theirs, most),
        lambda a, b: similarity_hashes.distances(one[a], other[b]).astype(float),
        most=most, shown=5,
    )  # fmt: skip
    assert found.is_complete
    assert found.one.tolist() == (exact <= most).any(axis=1).tolist()
    assert found.other.tolist() == (exact <= most).any(axis=0).tolist()
    pairs = sorted((float(exact[a, b]), a, b) for a, b in np.argwhere(exact <= most).tolist())
    assert found.closest == pairs[:5]


def test_when_too_many_are_alike_it_is_said():
    keys = np.zeros(3000, np.uint64)
    found = near_pairs.find(
        (3000, 3000), [(keys, [keys])], lambda a, b: np.zeros(len(a)), most=1, shown=2,
        budget=near_pairs._PAIRS_AT_ONCE,
    )  # fmt: skip
    assert not found.is_complete
    assert found.closest == [(0.0, 0, 0), (0.0, 0, 1)]


def test_records_far_back_in_a_shard_are_named(tmp_path):
    """More than are taken apart at once, in two shards."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz "))
    texts = ["".join(rng.choice(letters, 80)) for _ in range(700)]
    images = [jpeg(textured(seed, (40, 40))) for seed in range(700)]
    path = built(
        tmp_path, {**IMAGE, **TEXT},
        train=[{"image": images[n], "text": texts[n], "n": n} for n in range(700)],
        test=[{"image": jpeg(textured(n, (40, 40)), 60), "text": texts[n] + "!", "n": n}
              for n in range(0, 700, 100)],
    )  # fmt: skip
    train, test = as_read(path, "train"), as_read(path, "test")
    last = list(train)[-1].split(", ")[0]
    rows = []
    for found in looked(path)[0]:
        for _, place, _, other, _ in PAIR.findall(found.found):
            assert train[place]["n"] == test[other]["n"]
            rows.append((place.startswith(last), int(place.rpartition(" ")[2])))
    assert len(rows) == 6
    assert max(row for _, row in rows) > 256
    assert {is_last for is_last, _ in rows} == {False, True}


def test_several_processes_find_the_same(tmp_path, monkeypatch):
    path = built(
        tmp_path, IMAGE,
        train=[{"image": jpeg(textured(n))} for n in range(6)],
        test=[{"image": jpeg(textured(n + 3), 50)} for n in range(6)],
    )  # fmt: skip
    expected = looked(path)
    assert [issue.code for issue in expected[0]] == ["near-duplicate"]
    monkeypatch.setattr(examine, "FEW_BYTES", 0)
    report = verify(path, level=Level.DEEP, workers=2, near_duplicates=NearDuplicates())
    assert (list(report.issues), list(report.not_checked)) == expected


def test_notes_on_images_and_texts_are_kept_when_it_is_interrupted(tmp_path):
    class Stop(Exception):
        pass

    path = built(
        tmp_path, {**IMAGE, **TEXT},
        train=[{"image": jpeg(textured(n)), "text": SENTENCES[n], "n": n} for n in range(4)],
        test=[{"image": jpeg(textured(n + 2), 50), "text": SENTENCES[n], "n": 9 + n}
              for n in range(4)],
    )  # fmt: skip
    expected = looked(path)
    assert [issue.code for issue in expected[0]] == ["near-duplicate"] * 2
    seen = []

    def tell(done):
        seen.append(done.stage)
        if len(seen) == 3:
            raise Stop

    cache = tmp_path / "cache"
    options = {"level": Level.DEEP, "workers": 1, "resume_dir": cache}
    with pytest.raises(Stop):
        verify(path, near_duplicates=NearDuplicates(), report=tell, **options)
    again = verify(path, near_duplicates=NearDuplicates(), **options)
    assert (again.resumed, (list(again.issues), list(again.not_checked))) == (3, expected)
    shutil.rmtree(cache)
