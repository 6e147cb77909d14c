"""PyTorch and Grain."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import my_datasets
from my_datasets.errors import InvalidOptionError, MissingDependencyError
from my_datasets.input_pipeline import frameworks
from my_datasets.input_pipeline.frameworks.torch import TorchBatches
from my_datasets.input_pipeline.plan.planner import plan

OPTIONS = {"columns": ["whole", "text", "vector", "list"], "batch_size": 16, "epochs": 2}


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_number_of_processes_gives_the_same_batches(data_dir, workers):
    loader = my_datasets.torch_loader("everything", workers=workers, data_dir=data_dir, **OPTIONS)
    expected = list(my_datasets.batches("everything", data_dir=data_dir, **OPTIONS))
    found = list(loader)
    assert len(loader) == len(found) == len(expected) == 32
    for batch, other in zip(found, expected, strict=True):
        assert torch.equal(batch["whole"], torch.from_numpy(other["whole"]))
        assert batch["vector"].dtype == torch.float32
        assert batch["text"] == list(other["text"])
        rows = [row.tolist() for row in other["list"].rows()]
        assert [row.tolist() for row in batch["list"].unbind()] == rows


def test_it_resumes_where_it_was(data_dir):
    made = plan("everything", data_dir=data_dir, **OPTIONS)
    batches = [batch["whole"].tolist() for batch in my_datasets.torch_loader(made)]
    state = TorchBatches(made).state_after(20)
    rest = my_datasets.torch_loader(made, state=state, workers=2)
    assert [batch["whole"].tolist() for batch in rest] == batches[20:]


def test_a_cache_that_processes_cannot_share_is_refused(data_dir, tmp_path):
    options = {"data_dir": data_dir, "columns": ["whole"], "epochs": 2}
    with pytest.raises(InvalidOptionError, match="cache='disk'"):
        my_datasets.torch_loader("everything", workers=2, cache="memory", **options)
    kept = my_datasets.torch_loader(
        "everything", workers=2, cache="disk", cache_dir=tmp_path, **options
    )
    assert sorted(torch.cat([batch["whole"] for batch in kept]).tolist()) == sorted(
        2 * list(range(-100, 150))
    )
    mine = my_datasets.torch_loader("everything", cache="memory", **options)
    list(mine)
    engine = mine.dataset._engine(single=False)
    engine._source._source = None  # nothing is decoded again
    assert len(list(mine)) == 16


def test_a_source_is_a_map_style_dataset(data_dir):
    source = my_datasets.source("everything", columns=["whole", "vector"], data_dir=data_dir)
    loader = torch.utils.data.DataLoader(source, batch_size=10, shuffle=True)
    seen = torch.cat([batch["whole"] for batch in loader])
    assert sorted(seen.tolist()) == list(range(-100, 150))


def test_grain_shuffles_and_batches(data_dir):
    data = my_datasets.grain_dataset("everything", columns=["whole", "vector"], data_dir=data_dir)
    batches = list(data.shuffle(7).batch(25))
    assert [batch["vector"].shape for batch in batches] == [(25, 3)] * 10
    seen = np.concatenate([batch["whole"] for batch in batches])
    assert sorted(seen.tolist()) == list(range(-100, 150))


def test_neither_needs_tensorflow(data_dir):
    code = (
        "import sys, my_datasets\n"
        f"options = dict(columns=['whole'], data_dir={str(data_dir)!r})\n"
        "list(my_datasets.torch_loader('everything', workers=2, **options))\n"
        "list(my_datasets.grain_dataset('everything', **options).batch(5))\n"
        "assert not {'tensorflow', 'tensorflow_datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["torch", "grain"])
def test_what_is_not_installed_is_named(data_dir, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"my_datasets.input_pipeline.frameworks.{module}", False)
    monkeypatch.delattr(frameworks, module, raising=False)
    call = {"torch": my_datasets.torch_loader, "grain": my_datasets.grain_dataset}[module]
    with pytest.raises(MissingDependencyError, match=rf"pip install '{module}>="):
        call("everything", data_dir=data_dir)
