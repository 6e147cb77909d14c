"""Which of the processes that train together this one is."""

import json
import os
import sys

from my_datasets.errors import InvalidOptionError, explain


def this_host() -> tuple[int, int]:
    """Returns (index, count) of this process among those that train together.

    From PyTorch if `torch.distributed` is initialised; from JAX if it knows several processes; else
    from the environment: `RANK` and `WORLD_SIZE` as `torchrun` sets them, or `TF_CONFIG` as
    `tf.distribute` reads it. (0, 1) without any of those. No framework is imported for it.

    Raises:
      InvalidOptionError: The environment says what cannot be.
    """
    torch = sys.modules.get("torch")
    if (
        torch is not None
        and torch.distributed.is_available()
        and torch.distributed.is_initialized()
    ):
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax is not None and jax.process_count() > 1:
        return jax.process_index(), jax.process_count()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _checked(os.environ["RANK"], os.environ["WORLD_SIZE"], "RANK and WORLD_SIZE")
    if os.environ.get("TF_CONFIG"):
        config = json.loads(os.environ["TF_CONFIG"])
        task, cluster = config.get("task", {}), config.get("cluster", {})
        # The chief is a worker, too, and the first one.
        workers = [
            (kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))
        ]
        here = (task.get("type", "worker"), int(task.get("index", 0)))
        if here in workers:
            return workers.index(here), len(workers)
    return 0, 1


def _checked(index: str, count: str, where: str) -> tuple[int, int]:
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise InvalidOptionError(
            explain(
                f"{where} say that this is process {index!r} of {count!r}.",
                fix="correct them, or give shard=(index, count)",
            )
        )
    return int(index), int(count)
