"""The options of `plan`, `source` and `mix`, each declared once, and the checks of all options.

An option's type, rule and default stand together: `name: Annotated[type, rule, default]`. From that
come the keyword arguments that type checkers see, the signatures that `help` shows, the checks, and
the values that a function gets.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    ForwardRef,
    ParamSpec,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from my_datasets.errors import InvalidOptionError, MyDatasetsError, UnknownOptionError, nearest
from my_datasets.input_pipeline.decode.missing import Missing
from my_datasets.input_pipeline.plan import option_rules as rules
from my_datasets.input_pipeline.plan.option_rules import OptionError, Rule, shown
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.input_pipeline.plan.stages import CropKind, Remainder, Undecodable

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=Callable[..., Any])

_Path = Annotated[str | os.PathLike[str] | None, rules.path, None]
Workers = Annotated[int | None, rules.whole(1, none="as many as help"), None]


class ReadOptions(TypedDict, total=False):
    """The options of both `source` and `plan`."""

    split: Annotated[Any, rules.split, "train"]
    columns: Annotated[Sequence[str] | None, rules.columns, None]
    image_size: Annotated[tuple[int, int] | None, rules.image_size, None]
    missing: Annotated[Missing, rules.missing, "tfds"]
    data_dir: _Path
    shards_dir: _Path


class SourceOptions(ReadOptions, total=False):
    """The options of `source`, which says what they mean."""

    as_supervised: Annotated[bool, rules.flag(), False]


class BatchOptions(TypedDict, total=False):
    """The options of both `mix` and `plan`, besides `workers`."""

    batch_size: Annotated[int, rules.batch_size, 32]
    seed: Annotated[int | None, rules.whole(0, 2**64 - 1, none="a random one"), 0]
    epochs: Annotated[int | None, rules.whole(1, none="no end"), 1]
    shard: Annotated[tuple[int, int] | str | None, rules.shard, None]
    remainder: Annotated[Remainder, rules.choice(*get_args(Remainder)), "pad"]
    drop_remainder: Annotated[bool, rules.flag(), False]
    prefetch: Annotated[int | None, rules.whole(0, none="two"), None]
    memory: Annotated[int | str | None, rules.memory, None]


class LoaderOptions(ReadOptions, BatchOptions, total=False):
    """The options of `plan` besides `workers`, which `torch_loader` has for itself."""

    shuffle: Annotated[bool | None, rules.flag("the split's own rule"), None]
    shuffle_window: Annotated[int | None, rules.whole(1, none="all shards at once"), None]
    as_supervised: Annotated[bool | None, rules.flag("what the dataset declares"), None]
    image_dtype: Annotated[str | None, rules.choice("float32", none=True), None]
    crop: Annotated[CropKind | None, rules.choice(*get_args(CropKind), none=True), None]
    crop_area: Annotated[tuple[float, float], rules.crop_area, (0.08, 1.0)]
    undecodable: Annotated[Undecodable, rules.choice(*get_args(Undecodable)), "fail"]
    tokenizer: Annotated[Mapping[str, str | os.PathLike[str]] | None, rules.tokenizer, None]
    pack: Annotated[int | None, rules.whole(1, none="no rows of tokens"), None]
    pack_split: Annotated[bool, rules.flag(), False]
    bucket_by: Annotated[str | None, rules.name, None]
    bucket_window: Annotated[int | None, rules.whole(1, none="64 batches"), None]
    cache: Annotated[str, rules.choice("none", "memory", "disk", "auto"), "none"]
    cache_dir: _Path


class PlanOptions(LoaderOptions, total=False):
    """The options of `plan`, which says what they mean."""

    workers: Workers


# Rules for parameters without one of their own.
_RULES: dict[str, Rule] = {
    "reference": rules.reference,
    **{option: one.__metadata__[0] for option, one in PlanOptions.__annotations__.items()},
}
_ONLY_PIPELINE = ("augment", "service", "sharding", "deadline")
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
    *, called: str = "", also: Mapping[str, Rule] | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Returns a decorator that checks a function's options; errors name the function.

    The function gets all options in its `**options`, those that are not given by their defaults.
    `called` is its name as users write it after `my_datasets.`, by default its own; `also` has
    rules for options that are not `Annotated` with one.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name = called or function.__name__
        signature = inspect.signature(function)
        declared = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        more = _in_kwargs(signature)
        parameters = [*declared, *more]
        positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        own: dict[str, Rule | None] = {
            one.name: getattr(one.annotation, "__metadata__", [_RULES.get(one.name)])[0]
            for one in parameters
        }
        own.update(also or {})

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            _check_names(name, positional, known, args, kwargs)
            dataset = args[0] if args else kwargs[positional[0]]
            if isinstance(dataset, Plan):
                _check_beside_plan(name, kwargs.keys() & {one.name for one in more}, kwargs)
            try:
                found: Any = {one.name: one.default for one in more} | {
                    option: _checked(name, option, value, own[option])
                    for option, value in kwargs.items()
                }
                given: Any = tuple(
                    _checked(name, option, value, own[option])
                    for option, value in zip(positional, args, strict=False)
                )
                return function(*given, **found)
            except MyDatasetsError as error:
                # Name the function that the user called, not those that it calls in turn.
                said = "Raised by my_datasets."
                error.__notes__ = [
                    one for one in getattr(error, "__notes__", []) if not one.startswith(said)
                ]
                error.add_note(f"{said}{name}({shown(dataset)}, ...)")
                raise

        plain = [one.replace(annotation=_plain(one.annotation)) for one in parameters]
        setattr(call, "__signature__", signature.replace(parameters=plain))  # noqa: B010
        return call

    return decorate


def _in_kwargs(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Returns the options that a `TypedDict` declares for a function's `**options`."""
    (*_, last) = signature.parameters.values()
    if last.kind is not last.VAR_KEYWORD:
        return []
    (declared,) = get_args(last.annotation)
    return [
        inspect.Parameter(
            option, inspect.Parameter.KEYWORD_ONLY, default=one.__metadata__[1], annotation=one
        )
        for option, one in declared.__annotations__.items()
    ]


def _plain(annotation: Any) -> Any:
    """Returns a type without rule and default, for `help`."""
    found = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return found.__forward_arg__ if isinstance(found, ForwardRef) else found


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
                unknown = [name for name in kwargs if name not in names]
                raise UnknownOptionError(
                    f"{called}(...) has no option {unknown[0]}=." if unknown
                    else f"{called}(...) has wrong arguments: {error}.",
                    (nearest(unknown[0], names) if unknown else "")
                    or f"It takes: {', '.join(names)}",
                    fix=f"see help(my_datasets.{called})",
                ) from None  # fmt: skip
            for option, value in given.arguments.items():
                given.arguments[option] = _checked(called, option, value, known.get(option))
            return made_by(*given.args, **given.kwargs)

        if not is_class:
            return cast(_C, call)
        setattr(function, "__init__", call)  # noqa: B010
        return function

    return decorate


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
        texts = ["..." if isinstance(one, Plan) else shown(one) for one in args]
        call = f"{', '.join(texts[: len(positional)])}, {option}={texts[len(positional)]}"
        raise UnknownOptionError(
            f"{function}(...) takes only the {names} by position, not {len(args)} arguments.",
            fix="give them as a list: mix([...])" if function == "mix"
            else f"name the others: {function}({call})",
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
        meant = _CALLED.get(option.lower())
        hint = f"Did you mean {meant}=?" if meant in known else nearest(option, known)
        if option in _ONLY_PIPELINE:
            hint = "It is an option of pipeline(...)"
        elif function == "mix" and option in _RULES:
            hint = f"It is an option of plan(...): mix([plan(..., {option}=...), ...])"
        raise UnknownOptionError(
            f"{function}(...) has no option {option}=.",
            hint or f"Its options: {', '.join(known)}",
            fix=see,
        )


def _check_beside_plan(function: str, of_plan: Iterable[str], given: Mapping[str, object]) -> None:
    conflicting = [option for option in given if option in of_plan]
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
            f"{function}({option}={shown(value)}) is not valid.",
            f"Expected: {expected}",
            fix=fix.replace("FUNCTION", function),
        ) from None
