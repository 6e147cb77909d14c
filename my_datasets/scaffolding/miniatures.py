"""Reduces images, recordings and videos in size, keeping their file format."""

import io
import posixpath
from fractions import Fraction

# Longest side of images and frames in pixels; samples per recording; frames per video.
_SIDE, _SAMPLES, _FRAMES = 24, 800, 3
# Exceptions of decoders for invalid files, which include PyAV's errors.
UNREADABLE = (OSError, ValueError, SyntaxError, RuntimeError)
# Codecs that every FFmpeg build can write, for containers that require them.
_CODECS = {".webm": "libvpx", ".mpg": "mpeg1video", ".mpeg": "mpeg1video"}
_CONTAINERS = {".m4v": "mp4", ".mkv": "matroska", ".mpg": "mpeg"}
_FRAMES_PER_SECOND = 25


def miniature(kind: str, data: bytes, name: str) -> bytes:
    """Returns a small version of a file.

    Args:
      kind: The function of `my_datasets.sources` that reads such files from folders.
      data: The content of the file.
      name: The name of the file, whose extension determines the format.

    Raises:
      OSError, ValueError, SyntaxError, RuntimeError: The file cannot be decoded.
    """
    ending = posixpath.splitext(name)[1].lower()
    make = {"image_folder": _image, "audio_folder": _recording, "video_folder": _film}[kind]
    return make(data, ending)


def _image(data: bytes, ending: str) -> bytes:
    import PIL.Image

    image = PIL.Image.open(io.BytesIO(data))
    kind = image.format
    image.thumbnail((_SIDE, _SIDE))
    out = io.BytesIO()
    image.save(out, "JPEG" if ending in (".jpg", ".jpeg") and kind != "PNG" else kind)
    return out.getvalue()


def _recording(data: bytes, ending: str) -> bytes:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), frames=_SAMPLES)
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format={".ogg": "OGG"}.get(ending, ending[1:].upper()))
    return out.getvalue()


def _film(data: bytes, ending: str) -> bytes:
    import av

    out = io.BytesIO()
    with (
        av.open(io.BytesIO(data)) as film,
        av.open(out, "w", format=_CONTAINERS.get(ending, ending[1:])) as small,
    ):
        stream = small.add_stream(_CODECS.get(ending, "mpeg4"), rate=Fraction(_FRAMES_PER_SECOND))
        source = film.streams.video[0]
        scale = _SIDE / max(source.width, source.height)
        # Codecs require even dimensions.
        stream.width, stream.height = (
            max(2, round(side * scale / 2) * 2) for side in (source.width, source.height)
        )
        stream.pix_fmt = "yuv420p"
        for number, frame in enumerate(film.decode(source)):
            if number == _FRAMES:
                break
            made = frame.reformat(stream.width, stream.height, "yuv420p")
            made.pts, made.time_base = number, Fraction(1, _FRAMES_PER_SECOND)
            small.mux(stream.encode(made))
        small.mux(stream.encode(None))
    return out.getvalue()
