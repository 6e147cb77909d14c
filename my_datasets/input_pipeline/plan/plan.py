"""The plan of an input pipeline: an immutable list of stages."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from my_datasets.core.json_types import Json
from my_datasets.errors import PlanError
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.stages import (
    KINDS,
    Bucket,
    Decode,
    Mix,
    Pack,
    Read,
    Shuffle,
    Stage,
    Tokenize,
)
from my_datasets.records.attachments import attachments_of, receive
from my_datasets.storage import addresses

_FORMAT = 1
# Fields whose names in the JSON are older.
_JSON_NAMES = {"max_cached_shards": "held", "shards_dir": "held_at"}
_FIELDS = {written: name for name, written in _JSON_NAMES.items()}
# Digits of a hash in a saved position.
_SHOWN = 12
_S = TypeVar("_S", bound=Stage)


@dataclass(frozen=True)
class Plan:
    """The stages of an input pipeline, in the order in which data flows through them."""

    stages: tuple[Stage, ...]

    def explain(self) -> str:
        """Returns a description with one line per stage."""
        width = max(len(type(stage).__name__) for stage in self.stages)
        return "\n".join(
            f"{type(stage).__name__.lower():<{width}}  {stage.explain()}" for stage in self.stages
        )

    def __str__(self) -> str:
        return self.explain()

    def get(self, kind: type[_S]) -> _S | None:
        """Returns the stage of a kind; None if there is none."""
        return next((stage for stage in self.stages if isinstance(stage, kind)), None)

    def the(self, kind: type[_S]) -> _S:
        """Returns the stage of a kind that every plan has."""
        found = self.get(kind)
        if found is None:
            raise PlanError(
                f"The plan has no stage {kind.__name__.lower()!r}.", fix="make a new plan"
            )
        return found

    @property
    def beginning(self) -> State:
        """The state before the first batch; it names all that determines the order of examples."""
        orders = [stage.order for stage in self.stages if stage.order]
        mix = self.get(Mix)
        if mix is not None:
            parts = [Plan(part).beginning for part in mix.parts]
            # A hash stays short for any number of parts.
            content = hashlib.sha256("\n".join(part.identity for part in parts).encode())
            names = f"{len(parts)} datasets, {parts[0].dataset} the first"
            return State(
                names, parts[0].split, content.hexdigest(), ", ".join(orders), seed=mix.seed
            )
        read = self.the(Read)
        if self.get(Pack) or self.get(Bucket):
            # Lengths in tokens determine the order.
            some = [stage for stage in self.stages if isinstance(stage, Tokenize)]
            orders += [f"tokens {stage.content[:_SHOWN]}" for stage in some]
        order = ", ".join(orders) or "as stored"
        return State(read.dataset, read.split, read.content, order, seed=self._seed)

    @property
    def _seed(self) -> int | None:
        """The seed; None if the plan draws nothing."""
        shuffle, bucket, decode = self.get(Shuffle), self.get(Bucket), self.get(Decode)
        if shuffle is not None and shuffle.seed is not None:
            return shuffle.seed
        if bucket is not None:
            return bucket.seed
        return decode.seed if decode is not None and decode.crop == "random" else None

    def resumed(self, state: State) -> "Plan":
        """Returns the plan with a saved position's seed, if its own was drawn at random."""
        if state.seed is None or state.seed == self.beginning.seed:
            return self
        return Plan(_with_seed(self.stages, state.seed))

    @property
    def attachments(self) -> dict[str, dict[str, str | int]]:
        """The sources of shards that are fetched on demand; see `attachments_of`."""
        mix = self.get(Mix)
        parts = mix.parts if mix is not None else (self.stages,)
        reads = [stage for part in parts for stage in part if isinstance(stage, Read)]
        cached = [read.path for read in reads if read.max_cached_shards]
        paths = [path for path in cached if not addresses.is_remote(path)]
        return attachments_of(paths)

    def __reduce__(self) -> tuple[object, ...]:
        """Includes what another process needs to read releases attached on this machine."""
        return _received, (self.stages, self.attachments)

    def to_json(self) -> str:
        """Returns the plan as JSON, for `from_json`."""
        stages = [_written(stage) for stage in self.stages]
        return json.dumps({"format": _FORMAT, "stages": stages}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Returns the plan that `to_json` wrote.

        Raises:
          PlanError: The text is not a plan, or a later version of this package wrote it.
        """
        try:
            given = json.loads(text)
            if given["format"] != _FORMAT:
                raise ValueError(f"format {given['format']!r}")
            return cls(tuple(_read(stage) for stage in given["stages"]))
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(
                f"The text is not a plan: {error}",
                f"Expected what Plan.to_json wrote, format {_FORMAT}",
                fix="make a new plan",
            ) from error


def _with_seed(stages: tuple[Stage, ...], seed: int) -> tuple[Stage, ...]:
    """Replaces a seed that was drawn at random."""
    mix = next((one for one in stages if isinstance(one, Mix)), None)
    if mix is not None:
        # Parts that drew seeds of their own keep them: a saved position does not contain those.
        parts = tuple(
            _with_seed(part, seed)
            if any(isinstance(one, Decode) and one.seed == mix.seed for one in part) else part
            for part in mix.parts
        )  # fmt: skip
        found = dataclasses.replace(mix, parts=parts, seed=seed) if mix.is_drawn else mix
        return tuple(found if one is mix else one for one in stages)
    if not any(isinstance(one, Shuffle) and one.is_drawn for one in stages):
        return stages
    return tuple(
        dataclasses.replace(one, seed=seed)
        if isinstance(one, Shuffle | Bucket | Decode) and one.seed is not None else one
        for one in stages
    )  # fmt: skip


def _received(
    stages: tuple[Stage, ...], attachments: Mapping[str, Mapping[str, str | int]]
) -> Plan:
    receive(attachments)
    return Plan(stages)


def _written(value: Any) -> Any:
    """Returns a stage, or one of its values, as JSON."""
    if dataclasses.is_dataclass(value):
        fields = {
            _JSON_NAMES.get(one.name, one.name): _written(getattr(value, one.name))
            for one in dataclasses.fields(value)
        }
        return {"stage": type(value).__name__.lower(), **fields}
    return [_written(one) for one in value] if isinstance(value, tuple) else value


def _read(given: Json) -> Any:
    if isinstance(given, dict):
        kind = KINDS[str(given["stage"])]
        values = {name: _read(value) for name, value in given.items() if name != "stage"}
        return kind(**{_FIELDS.get(name, name): value for name, value in values.items()})
    return tuple(_read(one) for one in given) if isinstance(given, list) else given
