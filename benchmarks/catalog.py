"""How heavy and how fast a catalogue is: of many datasets, and of one with many versions.

Pages are weighed as they are, and as a web server compresses them; a real Chromium says how long
they take to be there, and how long a search takes from a key to the next frame.
"""

import argparse
import dataclasses
import gzip
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

import my_datasets
from my_datasets.catalog.releases import VersionComparer, collect
from my_datasets.catalog.site import write
from my_datasets.metadata.manifest import Manifest

# What pages may weigh and take; None where nothing is set.
TARGETS = {
    "index, compressed": 100e3,
    "style and script, compressed": 20e3,
    "page, compressed": 30e3,
    "page of many versions, compressed": 100e3,
    "index is there": 1.0,
    "search": 0.1,
}
_WORDS = (
    "alpha",
    "beta",
    "gamma",
    "delta",
    "cats",
    "dogs",
    "street",
    "voices",
    "letters",
    "leaves",
)


class Many(my_datasets.Builder, skip_registration=True):
    """A table that is another one in each version."""

    VERSION = tfds.core.Version("1.0.0")
    name = "many_versions"

    def _info(self) -> Any:
        features = {"x": np.float32, "kind": tfds.features.ClassLabel(names=["a", "b", "c"])}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), license="CC BY 4.0"
        )

    def _split_generators(self, dl_manager: Any) -> Any:
        del dl_manager
        return {
            "train": self._generate_examples(range(500)),
            "test": self._generate_examples(range(500, 600)),
        }

    def _generate_examples(self, rows: range) -> Any:
        major = int(self.version.major)
        for row in rows:
            yield row, {"x": row / major, "kind": row % 3}


def prepare(data_dir: Path, datasets: int, versions: int) -> None:
    """Builds digits once, gives it many names, and builds a table in many versions."""
    my_datasets.load("digits", data_dir=data_dir / "once")
    first = next((data_dir / "once/digits").iterdir())
    rng = np.random.default_rng(0)
    for number in range(datasets - 1):
        name = f"{'_'.join(rng.choice(_WORDS, 2))}_{number}"
        renamed(first, data_dir / "all" / name / first.name, name, rng)
    shutil.rmtree(data_dir / "once")
    for number in range(versions):
        notes = {f"{number + 1}.0.0": f"All values are divided by {number + 1}."}
        attributes = {
            "VERSION": tfds.core.Version(f"{number + 1}.0.0"), "name": Many.name,
            "RELEASE_NOTES": notes,
        }  # fmt: skip
        cls: Any = type("Version", (Many,), attributes, skip_registration=True)
        cls(data_dir=data_dir / "all").download_and_prepare()


def renamed(source: Path, target: Path, name: str, rng: np.random.Generator) -> None:
    """Copies a version of digits under another name."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if not path.name.startswith("my_datasets"):
            shutil.copy(path, target / path.name.replace("digits", name))
    info = json.loads((source / "dataset_info.json").read_text())
    info["name"] = name
    info["redistributionInfo"]["license"] = str(rng.choice(["CC BY 4.0", "MIT", "CC0 1.0"]))
    (target / "dataset_info.json").write_text(json.dumps(info))
    made = Manifest.read(source)
    if made is None or made.content is None:
        raise SystemExit("digits has no manifest")
    splits = {
        split: dataclasses.replace(
            one,
            shards=tuple(
                dataclasses.replace(shard, name=shard.name.replace("digits", name))
                for shard in one.shards
            ),
        )
        for split, one in made.content.splits.items()
    }
    content = dataclasses.replace(made.content, splits=splits)
    dataclasses.replace(made, content=content).write(target)


def weight(*paths: Path) -> tuple[int, int]:
    """Returns the bytes of files, as they are and compressed."""
    data = [path.read_bytes() for path in paths]
    return sum(map(len, data)), sum(len(gzip.compress(one, 6)) for one in data)


def in_browser(site: Path, program: str, runs: int) -> dict[str, float]:
    """Returns seconds, the median of several runs each."""
    from playwright.sync_api import sync_playwright

    there, searched = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for _ in range(runs):
            page = browser.new_page()
            page.goto(f"file://{site}/index.html")
            there.append(
                page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
            )
            searched.append(
                page.evaluate(
                    """async () => {
                      const search = document.getElementById("search");
                      const begin = performance.now();
                      search.value = "cats gamma";
                      search.dispatchEvent(new Event("input"));
                      await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                      return performance.now() - begin;
                    }"""
                )
                / 1000
            )
            page.close()
        browser.close()
    return {"index is there": statistics.median(there), "search": statistics.median(searched)}


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--runs", type=int, default=5, help="in the browser")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data_dir, site = Path(scratch) / "data", Path(scratch) / "site"
        prepare(data_dir, options.datasets, options.versions)
        for name in ("written", "written again"):
            begin = time.perf_counter()
            write(
                collect(data_dir / "all"), site, comparing=VersionComparer(Path(scratch) / "cache")
            )
            found[name] = time.perf_counter() - begin
        pages = {
            "index": [site / "index.html"],
            "style and script": sorted((site / "assets").iterdir()),
            "page": [sorted((site / "datasets").glob("*/index.html"))[0]],
            "page of many versions": [site / "datasets" / Many.name / "index.html"],
        }
        for name, paths in pages.items():
            found[name], found[f"{name}, compressed"] = weight(*paths)
        program = os.environ.get("CHROMIUM") or shutil.which("chromium")
        if program:
            found |= in_browser(site, program, options.runs)
        else:
            print("no Chromium: what takes place in a browser is left out", file=sys.stderr)
    print(f"{options.datasets} datasets, one of them in {options.versions} versions")
    is_good = True
    for name, value in found.items():
        target = TARGETS.get(name)
        is_size = value > 1000
        told = f"{value / 1000:,.1f} kB" if is_size else f"{value:.3f} s"
        limit = "" if target is None else f"{target / 1000:,.0f} kB" if is_size else f"{target} s"
        is_good &= target is None or value <= target
        print(f"{name:36}{told:>12}{limit and f'   at most {limit}'}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
