"""Reads folders of videos in any format that FFmpeg's libraries decode."""

import functools
import importlib.util
import io
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from my_datasets.building.units import Misfit
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import SourceError, explain
from my_datasets.sources.features import video_feature
from my_datasets.sources.files.folders import caused, folder
from my_datasets.sources.files.listing import Where, files
from my_datasets.sources.source import Source

_ENDINGS = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg")
# JPEG quality of the stored frames: the loss is not visible.
_QUALITY = 95


def video_folder(
    where: Where,
    *,
    labels: bool = True,
    every: int = 1,
    max_frames: int = 10_000,
    shortest_side: int | None = None,
    max_pixels: int = 50_000_000,
) -> Source:
    """Returns the videos in a folder: columns `video`, `file_name`, and `label` if requested.

    Videos are decoded; TFDS stores their frames individually, here as JPEG files of quality 95. A
    video that cannot be decoded fails the build or is quarantined.

    Args:
      where: A directory, a pattern such as `folder/*/*.mp4`, or several files; paths, or URLs in an
        object store.
      labels: Whether the name of a video's directory is its class.
      every: Keep every n-th frame, starting with the first.
      max_frames: The maximum number of frames kept of a video; more are an error.
      shortest_side: Downscale larger frames so that their shortest side has this many pixels; None
        to leave them unchanged.
      max_pixels: The maximum number of pixels of a frame.

    Raises:
      SourceError: There is no such file, a video is in no directory that could be its class, or a
        number is less than 1.
      MissingDependencyError: PyAV or Pillow is not installed.
    """
    for name, value in (("every", every), ("max_frames", max_frames), ("max_pixels", max_pixels)):
        if value < 1:
            raise SourceError(
                explain(f"video_folder: {name} is {value}.", fix=f"pass {name}=1 or more")
            )
    for module in ("av", "PIL"):
        if importlib.util.find_spec(module) is None:
            raise missing_dependency(module, needed_for="reading films")
    return folder(
        files(where, _ENDINGS),
        "video",
        labels=labels,
        convert=_Decoder(every, max_frames, shortest_side, max_pixels),
        kind=pa.list_(pa.large_binary()),
        feature=functools.partial(video_feature, "jpeg"),
    )


class Frames(list[bytes]):
    """The frames of a video, each an encoded image."""

    @property
    def nbytes(self) -> int:
        """Their total size in bytes."""
        return sum(map(len, self))


@dataclass(frozen=True)
class _Decoder:
    every: int
    max_frames: int
    shortest_side: int | None
    max_pixels: int

    def __call__(self, data: bytes) -> Frames | Misfit:
        """Returns the frames of a video, or what is wrong with it."""
        import av

        if not data:
            return Misfit("video", "a film", "an empty file")
        frames = Frames()
        try:
            with av.open(io.BytesIO(data)) as film:
                if not film.streams.video:
                    return Misfit("video", "a film", "no moving picture in it")
                stream = film.streams.video[0]
                if stream.width * stream.height > self.max_pixels:
                    found = f"{stream.width:,} x {stream.height:,} pixels"
                    return Misfit("video", f"frames of at most {self.max_pixels:,} pixels", found)
                for number, frame in enumerate(film.decode(stream)):
                    if number % self.every:
                        continue
                    if len(frames) == self.max_frames:
                        return Misfit("video", f"at most {self.max_frames:,} frames", "more")
                    frames.append(self._file(frame.to_image()))
        except (av.error.FFmpegError, OSError, ValueError) as error:
            found = f"{len(data):,} bytes that start with {data[:8]!r}"
            return caused(error, "video", "a film", found)
        return frames or Misfit("video", "a film", "no frame in it")

    def _file(self, image: Any) -> bytes:
        import PIL.Image

        side = min(image.size)
        if self.shortest_side is not None and side > self.shortest_side:
            size = tuple(max(1, round(n * self.shortest_side / side)) for n in image.size)
            image = image.resize(size, PIL.Image.Resampling.LANCZOS)
        out = io.BytesIO()
        image.convert("RGB").save(out, "JPEG", quality=_QUALITY)
        return out.getvalue()
