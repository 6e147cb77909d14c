"""Twenty epochs take no more memory than a few."""

import json
import subprocess
import sys

import numpy as np
import pytest

SOAK = """
import gc, json, sys
from pathlib import Path
import my_datasets

def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

name, options = sys.argv[1], json.loads(sys.argv[2])
open_ = getattr(my_datasets, options.pop("by"))
found = []
train = open_(name, epochs=None, **options)
steps = train.steps_per_epoch if hasattr(train, "steps_per_epoch") else len(
    my_datasets.batches(name, epochs=1, **{**options, "workers": None}))
for number, _ in enumerate(train, 1):
    if number % (steps * options_repeat) == 0:
        found.append(resident())
        if len(found) == 20:
            break
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"by": "pipeline", "image_size": [48, 48], "image_dtype": "float32"},
        {"by": "pipeline", "image_size": [48, 48], "cache": "memory"},
        {"by": "batches", "image_size": [48, 48], "crop": "random", "workers": 2},
        {"by": "torch_loader", "image_size": [48, 48], "workers": 0},
    ],
    ids=["pipeline", "cached", "batches", "torch"],
)
def test_memory_stays_flat_for_twenty_epochs(data_dir, options, record_property):
    """Epochs of 50 times the photographs each; the first five may grow."""
    code = SOAK.replace("options_repeat", "50")
    given = json.dumps({"batch_size": 8, "data_dir": str(data_dir), **options})
    done = subprocess.run(
        [sys.executable, "-c", code, "photos", given], check=True, stdout=subprocess.PIPE
    )
    resident = np.array(json.loads(done.stdout), float)
    slope = np.polyfit(np.arange(15), resident[5:], 1)[0]
    record_property("slope", f"{slope / 1e6:.3f} MB an epoch, of {resident[-1] / 1e6:,.0f} MB")
    assert abs(slope) < 0.002 * resident[-1]
