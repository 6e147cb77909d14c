"""Environments of the peers that this package's own cannot hold, each installed once."""

import shutil
import subprocess
import sys
from pathlib import Path

# One each: what MosaicML Streaming requires of NumPy would hold the others back. Pillow and PyTorch
# are those of `constraints.txt`, so that nobody decodes with another version.
_PHOTOS = ("pillow==12.3.0", "pyarrow==25.0.1")
PINS: dict[str, tuple[str, ...]] = {
    "hf": (*_PHOTOS, "datasets==5.2.0", "numpy==2.4.6"),
    "grain": (*_PHOTOS, "grain==0.2.18", "array-record==0.8.6", "msgpack==1.2.4", "numpy==2.4.6"),
    "webdataset": (*_PHOTOS, "webdataset==1.0.2", "torch==2.15.0", "numpy==2.4.6"),
    "mosaic": (*_PHOTOS, "mosaicml-streaming==0.13.0", "torch==2.15.0", "numpy==2.1.3"),
    # Of which s3fs holds back the botocore that this package's own environment has.
    "fsspec": ("s3fs==2026.9.0", "gcsfs==2026.10.1"),
    "litdata": (*_PHOTOS, "litdata==0.2.76", "torch==2.15.0", "numpy==2.4.6"),
}
PYTHON = "3.11"


def python_of(peer: str, directory: Path) -> str:
    """Returns the Python of a peer's environment, installed if it is not there as pinned."""
    place = directory.expanduser().absolute() / peer
    python, stamp = place / "bin/python", place / "pins.txt"
    pins = "\n".join([PYTHON, *PINS[peer]]) + "\n"
    if python.exists() and stamp.is_file() and stamp.read_text("utf-8") == pins:
        return str(python)
    print(f"installing {', '.join(PINS[peer])}", file=sys.stderr, flush=True)
    # Nothing but an environment is taken away.
    if (place / "pyvenv.cfg").is_file():
        shutil.rmtree(place)
    _uv(peer, "venv", str(place), "--python", PYTHON)
    _uv(peer, "pip", "install", "--python", str(python), *PINS[peer])
    stamp.write_text(pins, "utf-8")
    return str(python)


def _uv(peer: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{peer} cannot be installed:\n{done.stderr}")
