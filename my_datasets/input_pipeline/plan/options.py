"""Checks the options of `pipeline`, `batches` and others before any data is read."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast, get_args

from my_datasets.errors import (
    InvalidOptionError,
    MyDatasetsError,
    UnknownOptionError,
    nearest,
)
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.option_rules import OptionError, Rule, shown
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import CropKind, Remainder, Stop, Undecodable

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=Callable[..., Any])
# Names of other libraries for our options.
_CALLED = {
    "batch": "batch_size", "bs": "batch_size", "num_epochs": "epochs", "repeat": "epochs",
    "num_workers": "workers", "num_threads": "workers", "num_parallel_calls": "workers",
    "drop_last": "drop_remainder", "random_seed": "seed", "shuffle_seed": "seed", "rng": "seed",
    "features": "columns", "fields": "columns", "keys": "columns", "resize": "image_size",
    "size": "image_size", "target_size": "image_size", "dtype": "image_dtype",
    "shuffle_files": "shuffle", "shuffle_buffer": "shuffle", "buffer_size": "shuffle",
    "shuffle_buffer_size": "shuffle", "prefetch_factor": "prefetch", "rank": "shard",
    "world_size": "shard", "num_shards": "shard", "num_replicas": "shard", "host": "shard",
    "transform": "augment", "augmentation": "augment", "splits": "split", "subset": "split",
    "root": "data_dir", "directory": "data_dir", "max_length": "pack", "vocabulary": "tokenizer",
}  # fmt: skip


def checked(
    *more: type, called: str = "", also: Mapping[str, Rule] | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Returns a decorator that checks a function's options; errors name the function.

    Args:
      *more: `TypedDict`s of the options in the function's `**options`.
      called: The function's name, as users write it after `my_datasets.`; by default its own.
      also: Rules for options of this function only.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name = called or function.__name__
        parameters = inspect.signature(function).parameters.values()
        positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        first = positional[0]
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        known += [option for one in more for option in one.__annotations__]
        own = {**_RULES, **_RULES_OF.get(name, {}), **(also or {})}

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            _check_names(name, positional, known, args, kwargs)
            plan = args[0] if args else kwargs[first]
            if isinstance(plan, Plan):
                _check_beside_plan(name, more, kwargs)
            try:
                found: Any = {
                    option: _checked(name, option, value, own.get(option))
                    for option, value in kwargs.items()
                }
                given: Any = tuple(
                    _checked(name, option, one, own.get(option))
                    for option, one in zip(positional, args, strict=False)
                )
                return function(*given, **found)
            except MyDatasetsError as error:
                # Name the function that the user called, not those that it calls in turn.
                said = "Raised by my_datasets."
                error.__notes__ = [
                    one for one in getattr(error, "__notes__", []) if not one.startswith(said)
                ]
                error.add_note(f"{said}{name}({shown(plan)}, ...)")
                raise

        return call

    return decorate


def checked_call(called: str, **known: Rule) -> Callable[[_C], _C]:
    """As `checked`, for a function or class that takes no dataset, with the rules it needs."""

    def decorate(function: _C) -> _C:
        is_class = isinstance(function, type)
        made_by: Any = getattr(function, "__init__") if is_class else function  # noqa: B009
        signature = inspect.signature(made_by)

        @functools.wraps(made_by)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError as error:
                names = list(signature.parameters)[is_class:]
                raise _misnamed(called, names, kwargs, error) from None
            for option, value in given.arguments.items():
                given.arguments[option] = _checked(called, option, value, known.get(option))
            return made_by(*given.args, **given.kwargs)

        if not is_class:
            return cast(_C, call)
        setattr(function, "__init__", call)  # noqa: B010
        return function

    return decorate


def _misnamed(
    called: str, names: Sequence[str], given: Mapping[str, object], error: TypeError
) -> UnknownOptionError:
    unknown = [name for name in given if name not in names]
    problem = f"has no option {unknown[0]}=." if unknown else f"has wrong arguments: {error}."
    return UnknownOptionError(
        f"{called}(...) {problem}",
        (nearest(unknown[0], names) if unknown else "") or f"It takes: {', '.join(names)}",
        fix=f"see help(my_datasets.{called})",
    )


def _check_names(
    function: str,
    positional: Sequence[str],
    known: Sequence[str],
    args: Sequence[object],
    given: Mapping[str, object],
) -> None:
    first, names = positional[0], " and ".join(positional)
    if len(args) > len(positional):
        extra = args[len(positional)]
        option = "split" if isinstance(extra, str) and "split" in known else "batch_size"
        option = option if option in known else known[0]
        value = "..." if isinstance(extra, Plan) else shown(extra)
        before = ", ".join("..." if isinstance(one, Plan) else shown(one) for one in args)
        before = before.removesuffix(f", {value}")
        raise UnknownOptionError(

                f"{function}(...) takes only the {names} by position, not {len(args)} arguments.",
                fix="give them as a list: mix([...])" if function == "mix"
                else f"name the others: {function}({before}, {option}={value})"
        )  # fmt: skip
    if not args and first not in given:
        fix = f"name one that is prepared: {function}('digits')"
        raise UnknownOptionError(f"{function}() needs a dataset.", fix=fix)
    see = f"see help(my_datasets.{function})"
    absent = " and ".join(one for one in positional[len(args) :] if one not in given)
    if absent:
        raise UnknownOptionError(f"{function}(...) also needs {absent}.", fix=see)
    for option in given:
        if option in known or option in positional:
            continue
        called = _CALLED.get(option.lower())
        meant = f"Did you mean {called}=?" if called in known else nearest(option, known)
        elsewhere = "It is an option of pipeline(...)" if option in _ONLY_PIPELINE else ""
        if function == "mix" and option in _RULES:
            elsewhere = f"It is an option of plan(...): mix([plan(..., {option}=...), ...])"
        raise UnknownOptionError(
            f"{function}(...) has no option {option}=.",
            elsewhere or meant or f"Its options: {', '.join(known)}",
            fix=see,
        )


def _check_beside_plan(function: str, more: Sequence[type], given: Mapping[str, object]) -> None:
    own = {option for one in more for option in one.__annotations__}
    # A loader's processes are not part of a plan.
    own -= {"workers"} if function == "torch_loader" else set()
    conflicting = [option for option in given if option in own]
    if conflicting:
        raise UnknownOptionError(
            f"{function}(plan, ...): a plan already has its options; "
            f"remove {', '.join(conflicting)}.",
            fix=f"give them to plan(...), or give {function} the dataset's name",
        )


def _checked(function: str, option: str, value: object, rule: Rule | None) -> object:
    if rule is None:
        return value
    try:
        return rule(option, value)
    except OptionError as misfit:
        expected, fix = misfit.args
        raise InvalidOptionError(

                f"{function}({option}={shown(value)}) is not valid.", f"Expected: {expected}",
                fix=fix.replace("FUNCTION", function)
        ) from None  # fmt: skip


_RULES: dict[str, Rule] = {
    "reference": rules.reference,
    "parts": rules.parts,
    "split": rules.split,
    "batch_size": rules.batch_size,
    "shuffle": rules.flag("the split's own rule"),
    "shuffle_window": rules.whole(1, none="all shards at once"),
    "seed": rules.whole(0, 2**64 - 1, none="a random one"),
    "epochs": rules.whole(1, none="no end"),
    "as_supervised": rules.flag("what the dataset declares"),
    "columns": rules.columns,
    "image_size": rules.pair,
    "image_dtype": rules.choice("float32", none=True),
    "crop": rules.choice(*get_args(CropKind), none=True),
    "crop_area": rules.parts_of_area,
    "missing": rules.missing,
    "undecodable": rules.choice(*get_args(Undecodable)),
    "tokenizer": rules.tokenizer,
    "pack": rules.whole(1, none="no rows of tokens"),
    "pack_split": rules.flag(),
    "bucket_by": rules.name,
    "bucket_window": rules.whole(1, none="64 batches"),
    "cache": rules.choice("none", "memory", "disk", "auto"),
    "cache_dir": rules.path,
    "shard": rules.shard,
    "remainder": rules.choice(*get_args(Remainder)),
    "drop_remainder": rules.flag(),
    "workers": rules.whole(1, none="as many as help"),
    "prefetch": rules.whole(0, none="two"),
    "memory": rules.memory,
    "data_dir": rules.path,
    "shards_dir": rules.path,
    "state": rules.state,
    "augment": rules.augment,
    "service": rules.of_types(
        str, expected="the URL of a dispatcher", fix="give service='grpc://localhost:5050'"
    ),
    "sharding": rules.choice("exact", "static", "dynamic", "off"),
    "deadline": rules.real(0, above=True),
    "weights": rules.numbers_above_0,
    "temperature": rules.real(0, above=True),
    "stop": rules.choice(*get_args(Stop)),
    "shuffle_files": rules.flag(),
    "with_info": rules.flag(),
    "download": rules.flag(),
}


def _any(option: str, value: object) -> object:  # noqa: ARG001 - as all rules
    return value


# `load` accepts the same as `tfds.load`.
_RULES_OF: dict[str, dict[str, Rule]] = {
    "load": {
        "reference": rules.name_to_load,
        "split": _any,
        "batch_size": rules.whole(1, none="single examples", also=(-1,)),
        "as_supervised": rules.flag(),
    },
    "open": {"reference": rules.no_plan},
    "plan": {"reference": rules.no_plan},
    "source": {"reference": rules.no_plan, "as_supervised": rules.flag()},
    "grain_dataset": {"reference": rules.no_plan, "as_supervised": rules.flag()},
    "torch_loader": {"workers": rules.whole(0, none="no processes")},
}
_ONLY_PIPELINE = ("augment", "service", "sharding", "deadline")
