"""A consumer in a process of its own, which tests kill: what it consumed is in a file.

It never loads TensorFlow: `python -m tests.kafka.consumer URL FEATURES GROUP FILE [BATCH]`.
"""

import json
import sys
import time

from my_datasets.kafka.stream import stream


def main(url: str, features: str, group: str, file: str, batch_size: str = "10") -> None:
    batches = stream(
        url, features=features, group=group, batch_size=int(batch_size), max_wait=0.2,
        as_numpy=True, commit_seconds=0.2, options={"session.timeout.ms": 6000},
    )  # fmt: skip
    with open(file, "a") as out:
        for batch in batches:
            # "Trained": what is in the file counts, and it takes a while.
            time.sleep(0.01)
            out.write(json.dumps(batch["id"].tolist()) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
