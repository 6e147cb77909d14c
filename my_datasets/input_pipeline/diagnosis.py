"""Finds the bottleneck of an input pipeline, and what would make it faster."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from my_datasets.core.processes import cores
from my_datasets.errors import FeatureError, InvalidOptionError
from my_datasets.input_pipeline.decode import pytree
from my_datasets.input_pipeline.decode.pytree import Ragged, available_memory, size_of
from my_datasets.input_pipeline.engine import Batches, Engine
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import (  # fmt: skip
    Batch,
    Cache,
    Decode,
    Prefetch,
    Read,
    Repeat,
    Stage,
    Tokenize,
)
from my_datasets.input_pipeline.stopwatch import Stopwatch

if TYPE_CHECKING:
    from my_datasets.input_pipeline.transform.augment import Augmentation

Framework = Literal["tensorflow", "numpy"]

# The least gain that makes a change worth reporting.
_WORTH = 1.2
# The largest share of free memory for which a cache is tried.
_FOR_CACHE = 0.25
# The longest time in seconds to fill that cache, before it can be measured.
_FILLED_IN = 20.0
# What each stage does, and what helps if it is the bottleneck and no option helps.
STAGES = {
    "order": ("computing which examples come next", "a smaller bucket_window"),
    "read": ("reading records, and verifying their checksums", "a local disk, or cache='memory'"),
    "parse": ("parsing records", "fewer features: columns=[...]"),
    "decode": ("decoding features, above all images",
               "a smaller image_size, fewer columns, or smaller images in the dataset"),
    "tokenize": ("tokenizing texts", "tokens computed when the dataset is built"),
    "cache": ("reading examples from the cache", "larger batches"),
    "pack": ("packing lists of tokens into rows", "shorter rows"),
    "mix": ("merging examples of several datasets", "larger batches"),
    "scale": ("converting images to floats from 0 to 1", "scaling in the model, on its device"),
    "map": ("augmenting images", "augmenting in the model, on its device, or fewer changes"),
    "deliver": ("splitting pieces into batches, and delivering them", "larger batches"),
}  # fmt: skip


@dataclass(frozen=True)
class Ceiling:
    """The throughput of one stage if the others took no time.

    Attributes:
      stage: Its name, one of `STAGES`.
      seconds: The seconds it takes per example, in one thread.
      share: Its share of the time of all stages, from 0 to 1.
    """

    stage: str
    seconds: float
    share: float

    @property
    def rate(self) -> float:
        """Examples per second, in one thread."""
        return 1 / self.seconds if self.seconds else float("inf")


@dataclass(frozen=True)
class TriedChange:
    """A change that was tried.

    Attributes:
      option: The option: `workers`, `prefetch` or `cache`.
      value: Its new value.
      before: Examples per second without the change.
      after: Examples per second with it.
    """

    option: str
    value: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """The speed with the change, relative to that without."""
        return self.after / self.before


@dataclass(frozen=True)
class Diagnosis:
    """The speed of a pipeline, and its bottleneck.

    Attributes:
      plan: The description of the plan, from `Plan.explain`.
      framework: The consumer of the batches.
      rate: Examples per second of the pipeline as planned.
      ceilings: The stages, in the order in which data flows through them.
      changes: The changes tried, best first.
      bottleneck: `workers` or `prefetch` if that option limits the speed; else the slowest stage.
    """

    plan: str
    framework: Framework
    rate: float
    ceilings: tuple[Ceiling, ...]
    changes: tuple[TriedChange, ...]
    bottleneck: str

    @property
    def advice(self) -> str:
        """What to change, in words."""
        best = self.changes[0] if self.changes else None
        if best is not None and best.gain >= _WORTH:
            return f"with {best.option}={best.value} it is {best.gain:.1f} times as fast (measured)"
        if self.bottleneck in STAGES:
            return f"no option makes it faster; try {STAGES[self.bottleneck][1]}"
        return "no option makes it faster"

    def to_dict(self) -> dict[str, object]:
        """Returns the diagnosis for JSON; rates are examples per second."""
        return {
            "plan": self.plan.splitlines(),
            "framework": self.framework,
            "rate": self.rate,
            "bottleneck": self.bottleneck,
            "advice": self.advice,
            "ceilings": [{**dataclasses.asdict(one), "rate": one.rate} for one in self.ceilings],
            "changes": [{**dataclasses.asdict(one), "gain": one.gain} for one in self.changes],
        }


def diagnose(
    plan: Plan,
    *,
    augment: "Augmentation | None" = None,
    framework: Framework = "tensorflow",
    seconds: float = 2.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Measures the stages of a pipeline, finds the bottleneck, and tries what would help.

    Each of about six measurements takes about `seconds`; `tell` is called with the name of each
    before it begins. `augment` is for TensorFlow only.

    Raises:
      PlanError: The data of the plan changed.
    """
    if augment is not None and framework != "tensorflow":
        raise InvalidOptionError("augment= needs TensorFlow.", fix="use framework='tensorflow'")
    endless = _replaced(plan, Repeat(None))
    tell("each stage by itself")
    each = dict.fromkeys(STAGES, 0.0) | _profile(endless, seconds)
    alone = _replaced(endless, _prefetch(plan, workers=1, ahead=0))
    if augment is not None:
        tell("changes of images")
        each["map"] = _augmentation_time(alone, augment, seconds)
    tell("one thread alone")
    serial = 1 / _rate(alone, augment, framework, seconds)
    each["deliver"] = max(0.0, serial - sum(each.values()))
    total = sum(each.values())
    ceilings = tuple(
        Ceiling(stage, one, one / total) for stage, one in each.items() if one > 0.001 * total
    )
    tell("all stages together")
    rate = _rate(endless, augment, framework, seconds)
    changes = []
    for option, value, other, wait in _alternatives(endless, serial):
        tell(f"{option}={value}")
        before = rate if not wait else _rate(endless, augment, framework, seconds, wait)
        changes.append(
            TriedChange(option, value, before, _rate(other, augment, framework, seconds, wait))
        )
    changes.sort(key=lambda change: -change.gain)
    largest = max(ceilings, key=lambda one: one.share).stage
    structural = [one for one in changes if one.option != "cache" and one.gain >= _WORTH]
    bottleneck = structural[0].option if structural else largest
    return Diagnosis(plan.explain(), framework, rate, ceilings, tuple(changes), bottleneck)


def _profile(plan: Plan, seconds: float) -> dict[str, float]:
    """Returns the seconds that each stage takes per example, in one thread."""
    engine = Engine(plan)
    end = time.perf_counter() + seconds
    # The first epoch fills the cache.
    first = engine.batching.pieces(0) if plan.get(Cache) is not None else 1
    for number in range(first):
        engine.load(engine.batching.piece(number))
    examples = 0
    with Stopwatch() as watch:
        for number in itertools.count(first):
            piece = engine.batching.piece(number)
            engine.load(piece)
            examples += piece.batches * piece.rows
            if time.perf_counter() >= end:
                break
    return {stage: total / examples for stage, total in watch.seconds.items()}


def _augmentation_time(plan: Plan, augment: "Augmentation", seconds: float) -> float:
    """Returns the seconds that augmenting an example takes."""
    import tensorflow as tf

    engine = Engine(plan, single=True)
    piece = engine.batching.piece(0)
    batch = engine.load(piece)
    leaves = zip(pytree.columns_of(engine.tree), pytree.columns_of(batch), strict=True)
    found = [column for leaf, column in leaves if leaf.form == "image"]
    if len(found) != 1 or isinstance(found[0], Ragged) or found[0].dtype == object:
        raise FeatureError(
            "augment needs exactly one image feature, with images of one size.",
            fix="give image_size, choose one feature with columns, or leave augment out",
        )
    images = tf.constant(found[0])
    targets = tf.zeros([piece.rows], tf.int64)
    draws = tf.constant(augment.numbers(piece.epoch, engine.batching.numbers(piece)))

    @tf.function(autograph=False)
    def change() -> tuple[tf.Tensor, tf.Tensor]:
        return augment(images, targets, draws)

    change()
    begin, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() < begin + seconds:
        change()
        count += 1
    return (time.perf_counter() - begin) / count / piece.rows


def _rate(
    plan: Plan,
    augment: "Augmentation | None",
    framework: Framework,
    seconds: float,
    wait: float = 0.0,
) -> float:
    """Measures the examples per second of an endless plan.

    `wait` is how long the consumer works on each batch, in seconds.
    """
    if framework == "numpy":
        batches = iter(Batches(plan))
    else:
        from my_datasets.input_pipeline.frameworks.tf_dataset import Pipeline

        batches = iter(Pipeline(plan, augment=augment))
    prefetch = plan.the(Prefetch)
    batching = Engine(plan).batching
    # Prefetched batches arrive at once, and do not count.
    unmeasured = (prefetch.workers + prefetch.ahead) * batching.piece(0).batches
    if plan.get(Cache) is not None:
        unmeasured += batching.steps(0)
    for _ in range(unmeasured):
        next(batches)
    begin, count, examples = time.perf_counter(), 0, 0
    while count < unmeasured or time.perf_counter() < begin + seconds:
        if wait:
            time.sleep(wait)
        examples += int(pytree.columns_of(next(batches))[0].shape[0])
        count += 1
    return examples / (time.perf_counter() - begin)


def _alternatives(plan: Plan, serial: float) -> Iterator[tuple[str, str, Plan, float]]:
    """Yields (option, value, the plan with it, seconds that the consumer works on a batch)."""
    prefetch, cache = plan.the(Prefetch), plan.get(Cache)
    if not prefetch.ahead:
        # Prefetching only helps a consumer that works itself.
        yield (
            "prefetch", "2", _replaced(plan, _prefetch(plan, ahead=2)),
            serial * plan.the(Batch).size,
        )  # fmt: skip
        return
    more = max(2, cores())
    if prefetch.workers < more:
        yield "workers", str(more), _replaced(plan, _prefetch(plan, workers=more)), 0.0
    engine = Engine(plan, single=True)
    piece = engine.batching.piece(0)
    all_bytes = size_of(engine.load(piece)) / piece.rows * engine.batching.order.size
    fits = all_bytes <= available_memory() * _FOR_CACHE
    fills = plan.get(Read) is not None and serial * plan.the(Read).examples <= _FILLED_IN
    if cache is None and plan.the(Decode).crop != "random" and fits and fills:
        last = max(i for i, one in enumerate(plan.stages) if isinstance(one, Decode | Tokenize))
        stages = (*plan.stages[: last + 1], Cache("memory"), *plan.stages[last + 1 :])
        yield "cache", "'memory'", Plan(stages), 0.0


def _prefetch(plan: Plan, **changes: int) -> Prefetch:
    return dataclasses.replace(plan.the(Prefetch), **changes)


def _replaced(plan: Plan, stage: Stage) -> Plan:
    """Replaces the stage of the same kind."""
    return Plan(tuple(stage if type(one) is type(stage) else one for one in plan.stages))
