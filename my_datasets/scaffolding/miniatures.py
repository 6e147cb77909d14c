"""Small versions of images, recordings and films, in the form of the large ones."""

import io
import posixpath
from fractions import Fraction

# The longest side of images and of frames, in pixels; samples of recordings; frames of films.
_SIDE, _SAMPLES, _FRAMES = 24, 800, 3
# What decoders raise for files that they cannot make sense of; PyAV's errors are some of these.
UNREADABLE = (OSError, ValueError, SyntaxError, RuntimeError)
# Codecs that every build of FFmpeg writes, for files that take them.
_CODECS = {".webm": "libvpx", ".mpg": "mpeg1video", ".mpeg": "mpeg1video"}
_CONTAINERS = {".m4v": "mp4", ".mkv": "matroska", ".mpg": "mpeg"}
_FRAMES_PER_SECOND = 25


def miniature(kind: str, data: bytes, name: str) -> bytes:
    """Returns a file made small.

    Args:
      kind: What it is: a function of `my_datasets.sources` for files in folders.
      data: Its bytes.
      name: Its name, whose ending tells the form.

    Raises:
      OSError, ValueError, SyntaxError, RuntimeError: It cannot be decoded.
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
        # Codecs want even numbers.
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
