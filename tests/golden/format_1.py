"""Made `format_1/` once, by the code of commit 77dd334; kept to say how.

Versions in each file format, a signed store, a lock, and states within an epoch with what must
follow.
"""

import json
import subprocess
import sys
from pathlib import Path

import my_datasets
from tests.golden.sidecars_named_after_shards import Golden

FORMATS = ("tfrecord", "array_record", "parquet")
BATCH = 2
# Options of `batches`, by the name of their state.
OPTIONS = {
    "shuffled": {"shuffle": True, "seed": 7, "epochs": 2},
    "in order": {"shuffle": False, "epochs": 2},
    "of the second host": {"shuffle": True, "seed": 7, "epochs": 2, "shard": (1, 2)},
}


def numbers(batches):
    return [batch["number"].tolist() for batch in batches]


def states(data_dir):
    """Returns the state after the second batch, and the batches after it, for each of `OPTIONS`."""
    found = {}
    for name, options in OPTIONS.items():
        batches = iter(
            my_datasets.batches(
                "golden", split="train", data_dir=data_dir, batch_size=BATCH, **options
            )
        )
        next(batches)
        state = batches.state().to_json()
        found[name] = {"state": json.loads(state), "rest": numbers(batches)}
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for form in FORMATS:
        Golden(data_dir=target / form).download_and_prepare(file_format=form)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "golden", "-f", target / "key"],
        check=True,
    )
    command = [sys.executable, "-m", "my_datasets"]
    data = ["--data-dir", target / "tfrecord"]
    for words in (
        ["publish", "golden", *data, "--to", target / "store", "--sign-key", target / "key"],
        ["lock", "golden:1.*.*", *data, "--file", target / "datasets.lock"],
        ["lock", "--trust", target / "key.pub", "--file", target / "datasets.lock"],
    ):
        subprocess.run([*command, *words], check=True)
    (target / "key").unlink()
    (target / "states.json").write_text(json.dumps(states(target / "tfrecord"), indent=1) + "\n")
