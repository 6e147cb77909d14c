"""Which process this is."""

import json
import sys
import types

import pytest

from my_datasets.errors import InvalidOptionError
from my_datasets.input_pipeline.plan.delivery import this_host
from my_datasets.input_pipeline.plan.planner import plan
from my_datasets.input_pipeline.plan.stages import Shard

CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def config(**task):
    return json.dumps({"cluster": CLUSTER, "task": task})


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"TF_CONFIG": config(type="chief")}, (0, 3)),
        ({"TF_CONFIG": config(type="worker", index=1)}, (2, 3)),
        ({"TF_CONFIG": config(type="ps", index=0)}, (0, 1)),
    ],
)  # fmt: skip
def test_the_environment_tells(monkeypatch, data_dir, environment, expected):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert this_host() == expected
    made = plan("everything", shard="auto", data_dir=data_dir).get(Shard)
    assert (made.index, made.count) == expected


def test_what_makes_no_sense_is_said(monkeypatch):
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InvalidOptionError, match="process '4' of '4'"):
        this_host()


def test_frameworks_are_asked_first(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(
        sys.modules, "jax",
        types.SimpleNamespace(process_count=lambda: 3, process_index=lambda: 1),
    )  # fmt: skip
    assert this_host() == (1, 3)


def test_torch_tells_of_real_processes(tmp_path):
    """Two processes that found each other."""
    import subprocess

    code = f"""
import sys, torch.distributed as dist
from my_datasets.input_pipeline.plan.delivery import this_host
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
assert this_host() == (rank, 2), this_host()
dist.barrier()
"""
    started = [subprocess.Popen([sys.executable, "-c", code, str(rank)]) for rank in range(2)]
    assert [process.wait(120) for process in started] == [0, 0]
