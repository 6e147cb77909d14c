"""Archives as the sources of the reference datasets have them, made here, oddities included.

`python -m tests.datasets.archives` writes them, small, as the dummy data.
"""

import functools
import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import PIL.Image
import soundfile

# A fixed time: the same bytes each time they are made.
EPOCH = (1980, 1, 1, 0, 0, 0)


def tar_gz(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)
    return packed.getvalue()


def photograph(number, size=(40, 30), kind="JPEG", mode="RGB"):
    rng = np.random.default_rng(number)
    rough = rng.integers(0, 256, (4, 4, 3)).astype(np.uint8)
    image = PIL.Image.fromarray(rough).resize(size, PIL.Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.convert(mode).save(file, kind)
    return file.getvalue()


def cats_and_dogs(each=3, size=(40, 30), damaged=True):
    """Photographs, among them what the real archive has: no files, no images, others' formats."""
    files = {"readme[1].txt": b"Read me.", "MSR-LA - 3467.docx": b"PK"}
    for number, name in enumerate(("Cat", "Dog")):
        for i in range(each):
            files[f"PetImages/{name}/{i}.jpg"] = photograph(number * each + i, size)
        files[f"PetImages/{name}/Thumbs.db"] = b"\xd0\xcf\x11\xe0"
    files["PetImages/Cat/700.jpg"] = photograph(101, size, mode="L")
    files["PetImages/Dog/9502.jpg"] = photograph(103, size, mode="CMYK")
    if damaged:
        files["PetImages/Cat/10404.jpg"] = photograph(100, size, "GIF")
        files["PetImages/Cat/666.jpg"] = b""
        files["PetImages/Dog/11702.jpg"] = b""
        files["PetImages/Dog/9500.jpg"] = b"<html>not found</html>"
        whole = photograph(102, size)
        files["PetImages/Dog/9501.jpg"] = whole[: len(whole) // 2]
    return zipped(files)


def wave(number, length=400):
    file = io.BytesIO()
    samples = np.sin(np.arange(length) / (3 + number)) * 10_000
    soundfile.write(file, samples.astype(np.int16), 8000, format="WAV")
    return file.getvalue()


SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")


# Of the frames of a film.
SHADES = [0, 60, 120, 180, 240]


def film(shades=SHADES, size=(64, 48), codec="mpeg4"):
    """Returns a film with a frame of each shade of grey."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for shade in shades:
            pixels = np.full((size[1], size[0], 3), shade, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def spoken_numbers(digits=2, takes=2):
    """Recordings in the folder that GitHub makes of a release."""
    top = "free-spoken-digit-dataset-1.0.9"
    files = {f"{top}/README.md": b"# Free Spoken Digit Dataset", f"{top}/utils/x.py": b""}
    for digit in range(digits):
        for speaker in SPEAKERS:
            for take in range(takes):
                name = f"{top}/recordings/{digit}_{speaker}_{take}.wav"
                files[name] = wave(digit, 400 + 10 * take)
    return tar_gz(files)


def movie_sentiment(each=3):
    """Reviews, one with a byte order mark and one in Latin-1, and the features beside them."""
    files = {"aclImdb/README": b"Large Movie Review Dataset", "aclImdb/imdb.vocab": b"the\n"}
    for split in ("train", "test"):
        for name, stars in (("neg", 2), ("pos", 9)):
            for i in range(each):
                text = f"{split} {name} number {i}.<br /><br />It has {stars} stars."
                files[f"aclImdb/{split}/{name}/{i}_{stars}.txt"] = text.encode()
        files[f"aclImdb/{split}/labeledBow.feat"] = b"9 0:9 1:1\n"
    for i in range(each):
        files[f"aclImdb/train/unsup/{i}_0.txt"] = f"Nobody said of {i}.".encode()
    files["aclImdb/train/pos/100_10.txt"] = b"\xef\xbb\xbfMarked."
    files["aclImdb/train/pos/101_7.txt"] = "Am\xe9lie.".encode("latin-1")
    return tar_gz(files)


def collider_events(rows=20):
    """Rows as they stand in the file: the label, then 28 numbers, without a header."""
    rng = np.random.default_rng(0)
    lines = []
    for row in rng.normal(size=(rows, 29)):
        row[0] = row[0] > 0
        lines.append(",".join(f"{value:.18e}" for value in row))
    return gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)


def penguins_study(rows=9):
    """Penguins, of whom two were not measured; the sex of one is a dot."""
    lines = [
        "species,island,culmen_length_mm,culmen_depth_mm,flipper_length_mm,body_mass_g,sex",
        "Adelie,Torgersen,NA,NA,NA,NA,NA",
        "Gentoo,Biscoe,44.5,15.7,217,4875,.",
    ]
    names = (("Adelie", "Torgersen"), ("Chinstrap", "Dream"), ("Gentoo", "Biscoe"))
    for i in range(rows):
        species, island = names[i % 3]
        sex = ("MALE", "FEMALE")[i % 2]
        lines.append(f"{species},{island},{39 + i / 10:.1f},18.7,{181 + i},{3750 + i},{sex}")
    return ("\n".join(lines) + "\n").encode()


DUMMY = {
    "cats_and_dogs/kagglecatsanddogs_5340.zip": functools.partial(cats_and_dogs, damaged=False),
    "spoken_numbers/free-spoken-digit-dataset-1.0.9.tar.gz": spoken_numbers,
    "movie_sentiment/aclImdb_v1.tar.gz": movie_sentiment,
    "collider_events/HIGGS.csv.gz": collider_events,
    "penguins_study/penguins_size.csv": penguins_study,
}

if __name__ == "__main__":
    for name, make in DUMMY.items():
        path = Path(__file__).resolve().parents[2] / "dummy_data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(make())
