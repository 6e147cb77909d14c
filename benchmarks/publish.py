"""How fast releases are published and pulled, against copying and hashing, rsync, and fsspec.

Each measurement is a process of its own, in turn, `--runs` times. Files are in the page cache. A
directory is compared with `cp -r`, `sync` and `sha256sum`: what is least to be done for a copy that
is durable and known to be right. With `--stores`, real servers of S3 and GCS on this machine are
compared with fsspec's `put` and `get`, which verify nothing, with as many connections.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import environments
import load

CONNECTIONS = 8
# (ours, peer) -> how many times as long it may take.
TARGETS: dict[tuple[str, str], float | None] = {
    ("publish", "copy"): 1.3, ("pull", "copy"): 1.3, ("publish-again", "rsync"): None,
    ("pull-again", "rsync"): None, ("resume", "publish"): None,
}  # fmt: skip
STORES: dict[tuple[str, str], float | None] = {("publish", "put"): None, ("pull", "get"): None}
_FSSPEC = """
import fsspec, sys, time
what, url, directory, connections = sys.argv[1:]
options = {"asynchronous": False}
if url.startswith("gs://"):
    options |= {"token": "anon"}
system, path = fsspec.core.url_to_fs(url, **options)
begin = time.perf_counter()
if what == "put":
    system.put(directory, path, recursive=True, batch_size=int(connections))
else:
    system.get(path, directory, recursive=True, batch_size=int(connections))
print(time.perf_counter() - begin)
"""


def build(directory: Path, megabytes: int) -> Path:
    """Builds a version of noise in 64 shards; returns its directory."""
    import numpy as np
    import tensorflow_datasets as tfds

    import my_datasets

    class Noise(my_datasets.Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        name = "noise"

        def _info(self) -> tfds.core.DatasetInfo:
            tensor = tfds.features.Tensor(shape=(1_000_000,), dtype=np.uint8)
            features = tfds.features.FeaturesDict({"x": tensor})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager: Any) -> dict[str, Any]:  # noqa: ARG002
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Iterator[Any]:
            noise = np.random.default_rng(0)
            for row in range(megabytes):
                yield row, {"x": noise.integers(0, 255, 1_000_000, dtype=np.uint8)}

    builder = Noise(data_dir=directory)
    config = tfds.download.DownloadConfig(num_shards=64)
    builder.download_and_prepare(download_config=config)
    return Path(builder.data_dir)


def measured(what: str, version: Path, store: str, scratch: Path) -> float:
    """Returns the seconds that something takes, without the imports it needs."""
    if what in ("copy", "rsync"):
        return _timed(what, version, scratch)
    from my_datasets.errors import StoreError
    from my_datasets.publishing.publisher import publish
    from my_datasets.publishing.puller import pull
    from my_datasets.publishing.transfer import TransferProgress
    from my_datasets.storage.backends import open_store

    where = open_store(store)  # which imports what it needs
    begin = time.perf_counter()
    if what == "pull":
        pull("noise", where, scratch / "here", workers=CONNECTIONS, use_lock=False)
    elif what == "resume":

        def stop(now: TransferProgress) -> None:
            if now.stage == "uploading" and now.done > now.total / 2:
                raise StoreError("half of it is there")

        with contextlib.suppress(StoreError):
            publish(str(version), where, workers=CONNECTIONS, report=stop)
        publish(str(version), where, workers=CONNECTIONS)
    else:
        publish(str(version), where, workers=CONNECTIONS)
    return time.perf_counter() - begin


def _timed(what: str, version: Path, scratch: Path) -> float:
    target = scratch / what
    if what == "copy":
        command = f"cp -r '{version}' '{target}' && sync '{target}'/* && sha256sum '{target}'/*"
    else:
        shutil.copytree(version, target)
        command = f"rsync -a --checksum '{version}/' '{target}/'"
    begin = time.perf_counter()
    subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _once(what: str, version: Path, store: str, scratch: Path) -> float:
    os.sync()  # else it waits for what the one before it wrote
    done = subprocess.run(
        [sys.executable, __file__, "--once", what, str(version), store, str(scratch)],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return float(done.stdout.splitlines()[-1])


def in_a_directory(version: Path, runs: int) -> dict[str, list[float]]:
    """Returns the seconds that each takes, with a store in a directory."""
    found: dict[str, list[float]] = {}
    for number in range(runs):
        with tempfile.TemporaryDirectory(dir=version.parents[1]) as scratch:
            place = Path(scratch)
            store = f"{scratch}/store"
            steps = [
                ("copy", store), ("publish", store), ("publish-again", store), ("pull", store),
                ("resume", f"{scratch}/other"),
            ]  # fmt: skip
            # What comes later finds less memory that is free at once: so first every other time.
            for what, where in steps if number % 2 else [steps[-1], *steps[:-1]]:
                found.setdefault(what, []).append(_once(what, version, where, place))
            # Where all is there, nothing is copied.
            found.setdefault("pull-again", []).append(_once("pull", version, store, place))
            if shutil.which("rsync"):
                found.setdefault("rsync", []).append(_once("rsync", version, store, place))
    return found


def in_a_bucket(kind: str, version: Path, runs: int, python: str) -> dict[str, list[float]]:
    """Returns the seconds that each takes, with a store in a bucket on this machine."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests import servers

    found: dict[str, list[float]] = {}
    with getattr(servers, kind)("releases") as (url, _):
        plain = url.replace("anonymous@", "")
        for run in range(runs):
            with tempfile.TemporaryDirectory(dir=version.parents[1]) as scratch:
                place = Path(scratch)
                for what in ("publish", "pull"):
                    store = f"{url}/ours{run}"
                    found.setdefault(what, []).append(_once(what, version, store, place))
                for what, directory in (("put", f"{version}/"), ("get", f"{scratch}/got/")):
                    done = subprocess.run(
                        [python, "-c", _FSSPEC, what, f"{plain}/theirs{run}/", directory,
                         str(CONNECTIONS)],
                        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                        # It would ask, for a minute, what the emulator does not know.
                        env={**os.environ, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
                    )  # fmt: skip
                    found.setdefault(what, []).append(float(done.stdout.splitlines()[-1]))
    return found


def main() -> None:
    """Measures, prints, and writes JSON if asked to."""
    if sys.argv[1:2] == ["--once"]:
        what, directory, store, place = sys.argv[2:]
        print(measured(what, Path(directory), store, Path(place)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--stores", action="store_true", help="S3 and GCS on this machine, too")
    parser.add_argument(
        "--peers-dir", type=Path, default=Path("~/.cache/my_datasets_benchmarks/peers")
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", MY_DATASETS_LOCK="")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        version = build(Path(scratch), arguments.megabytes)
        size = sum(path.stat().st_size for path in version.iterdir())
        found = in_a_directory(version, arguments.runs)
        results["directory"] = _reported("directory", size, found, TARGETS)
        for kind in ("s3", "gcs") if arguments.stores else ():
            python = environments.python_of("fsspec", arguments.peers_dir)
            found = in_a_bucket(kind, version, arguments.runs, python)
            results[kind] = _reported(kind, size, found, STORES)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def _reported(
    where: str,
    size: int,
    found: dict[str, list[float]],
    targets: dict[tuple[str, str], float | None],
) -> dict[str, Any]:
    print(f"{where}: {size / 1e6:,.0f} MB")
    for what, seconds in found.items():
        middle = statistics.median(seconds)
        print(f"  {what:<13} {middle:.2f} s, {size / middle / 1e6:,.0f} MB/s")
    ratios = {}
    for (ours, peer), target in targets.items():
        if peer not in found:
            continue
        both = [a / b for a, b in zip(found[ours], found[peer], strict=True)]
        ratios[f"{ours} / {peer}"] = both
        wanted = f"; at most {target:g}" if target is not None else ""
        print(f"  {ours} takes {load.spread(both)} times as long as {peer}{wanted}", flush=True)
    return {"bytes": size, "seconds": found, "ratios": ratios}


if __name__ == "__main__":
    main()
