"""What the options of `pipeline`, `batches` and others may be: checked before anything is read."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, get_args

from my_datasets.core.reference import DatasetReference
from my_datasets.errors import (
    InvalidOptionError,
    MyDatasetsError,
    UnknownOptionError,
    explain,
    nearest,
)
from my_datasets.input_pipeline.plan import Plan
from my_datasets.input_pipeline.stages import CropKind, Remainder, Undecodable
from my_datasets.input_pipeline.state import State
from my_datasets.printable import PrintableError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SHOWN = 60
# What others call it.
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


class _MisfitError(PrintableError):
    """A value that an option cannot have; the arguments are what is expected, and how to fix it."""


def checked(*more: type) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Returns a decorator: the function's options are checked first, and errors name the function.

    Args:
      *more: A `TypedDict` of the options that the function takes beside its own.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name = function.__name__
        parameters = inspect.signature(function).parameters.values()
        first = next(one.name for one in parameters)
        known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
        known += [option for one in more for option in one.__annotations__]
        rules = {**_RULES, **_RULES_OF.get(name, {})}

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            _check_names(name, first, known, args, kwargs)
            plan = args[0] if args else kwargs[first]
            if isinstance(plan, Plan):
                _check_beside_plan(name, more, kwargs)
            try:
                found: Any = {
                    option: _checked(name, option, value, rules.get(option))
                    for option, value in kwargs.items()
                }
                given: Any = tuple(_checked(name, first, one, rules.get(first)) for one in args)
                return function(*given, **found)
            except MyDatasetsError as error:
                # The function that the user called, not those that it calls in turn.
                said = "Raised by my_datasets."
                error.__notes__ = [
                    one for one in getattr(error, "__notes__", []) if not one.startswith(said)
                ]
                error.add_note(f"{said}{name}({_shown(plan)}, ...)")
                raise

        return call

    return decorate


def _check_names(
    function: str, first: str, known: Sequence[str], args: Sequence[Any], given: Mapping[str, Any]
) -> None:
    if len(args) > 1:
        option = "split" if isinstance(args[1], str) and "split" in known else "batch_size"
        raise UnknownOptionError(
            explain(
                f"{function}(...) takes the {first} alone by position, and {len(args)} are given.",
                mend=f"name the others: {function}({_shown(args[0])}, {option}={_shown(args[1])})",
            )
        )
    if not args and first not in given:
        raise UnknownOptionError(
            explain(
                f"{function}() is not told of which dataset.",
                mend=f"name one that is prepared: {function}('digits')",
            )
        )
    for option in given:
        if option in known or option == first:
            continue
        called = _CALLED.get(option.lower())
        meant = f"Did you mean {called}=?" if called in known else nearest(option, known)
        elsewhere = "It is an option of pipeline(...)" if option in _ONLY_PIPELINE else ""
        raise UnknownOptionError(
            explain(
                f"{function}(...) has no option {option}=.",
                meant or elsewhere or f"Its options: {', '.join(known)}",
                mend=f"see help(my_datasets.{function})",
            )
        )


def _check_beside_plan(function: str, more: Sequence[type], given: Mapping[str, Any]) -> None:
    own = {option for one in more for option in one.__annotations__}
    # A loader's processes are no part of a plan.
    own -= {"workers"} if function == "torch_loader" else set()
    taken = [option for option in given if option in own]
    if taken:
        raise UnknownOptionError(
            explain(
                f"{function}(plan, ...): a plan has its options already; not taken: "
                f"{', '.join(taken)}",
                mend=f"give them to plan(...), or give {function} the dataset's name",
            )
        )


def _checked(function: str, option: str, value: Any, rule: Callable[[str, Any], Any] | None) -> Any:
    if rule is None:
        return value
    try:
        return rule(option, value)
    except _MisfitError as misfit:
        expected, fix = misfit.args
        raise InvalidOptionError(
            explain(
                f"{function}({option}={_shown(value)}) cannot be.", f"Expected: {expected}",
                mend=fix.replace("FUNCTION", function),
            )
        ) from None  # fmt: skip


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _whole(
    least: int, most: int | None = None, *, none: str = "", also: Sequence[int] = ()
) -> Callable[[str, Any], Any]:
    """Returns the rule for a whole number; `none` is what None means, if it may be."""

    def rule(option: str, value: Any) -> Any:
        if value is None and none:
            return None
        bounds = f"from {least}" if most is None else f"from {least} to {most:,}"
        expected = f"a whole number {bounds}" + (f"; or None for {none}" if none else "")
        number = _number_in(value)
        if number is None:
            raise _MisfitError(expected, f"give such a number, or leave {option} out")
        is_within = number in also or (least <= number and (most is None or number <= most))
        if isinstance(value, Integral) and is_within:
            return number
        near = max(number, least)
        near = near if most is None else min(near, most)
        raise _MisfitError(expected, f"give {option}={near}")

    return rule


def _number_in(value: Any) -> int | None:
    """Returns the whole number that is meant; None if there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    try:
        number = float(value) if isinstance(value, str | Real) else float("nan")
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _batch_size(option: str, value: Any) -> Any:
    if value is None:
        raise _MisfitError(
            "a whole number from 1",
            f"give {option}=32; single examples come from my_datasets.source(...)",
        )
    return _whole(1)(option, value)


def _flag(none: str = "") -> Callable[[str, Any], Any]:
    """Returns the rule for True or False; `none` is what None means, if it may be."""

    def rule(option: str, value: Any) -> Any:
        if isinstance(value, bool) or (value is None and none):
            return value
        if type(value).__name__ in ("bool_", "bool"):  # NumPy's
            return bool(value)
        is_no = str(value).strip().lower() in ("no", "false", "off", "none", "0", "")
        fix = f"give {option}={not is_no}"
        if option == "shuffle" and isinstance(value, Integral):
            fix = "give shuffle=True: there is no buffer, all examples are permuted"
        raise _MisfitError("True or False" + (f"; or None for {none}" if none else ""), fix)

    return rule


def _choice(*names: str, none: bool = False) -> Callable[[str, Any], Any]:
    def rule(option: str, value: Any) -> Any:
        if (value is None and none) or (isinstance(value, str) and value in names):
            return value
        expected = ", ".join([*map(repr, names), *(["None"] if none else [])])
        near = names[0]
        if isinstance(value, str):
            near = next((one for one in names if repr(one) in nearest(value, names)), near)
        elif option == "cache" and value is True:
            near = "memory"
        raise _MisfitError(f"one of {expected}", f"use {option}={near!r}")

    return rule


def _pair(option: str, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Sequence) and len(value) == 2 and all(
        isinstance(one, Integral) and not isinstance(one, bool) for one in value
    ):  # fmt: skip
        return tuple(map(int, value))
    number = _number_in(value)
    fix = f"give {option}=({number}, {number})" if number else f"give {option}=(224, 224)"
    raise _MisfitError("(height, width), two whole numbers of pixels", fix)


def _shard(option: str, value: Any) -> Any:
    if value is None or value == "auto":
        return value
    is_pair = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    if is_pair and all(isinstance(one, Integral) for one in value):
        return tuple(map(int, value))
    hosts = _number_in(value) or 2
    raise _MisfitError(
        "(index, count), 'auto' or None",
        "use 'auto', or give the number of this host, from 0, and how many there are: "
        f"{option}=(0, {hosts})",
    )


def _columns(option: str, value: Any) -> Any:
    expected = "a list of names of features; or None for all"
    if isinstance(value, str):
        raise _MisfitError(expected, f"give {option}=[{value!r}]")
    if value is None:
        return None
    if isinstance(value, Mapping) or not isinstance(value, Sequence | set | frozenset):
        raise _MisfitError(expected, f"give {option}=['image', 'label']")
    wrong = [one for one in value if not isinstance(one, str)]
    if wrong or not value:
        raise _MisfitError(expected, f"give names, not {wrong[0]!r}" if wrong else "leave it out")
    return list(value)


def _split(option: str, value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "to_absolute"):
        return value
    expected = "one split or slice, such as 'train[:80%]', or tfds.core.ReadInstruction"
    if isinstance(value, Sequence) and value and all(isinstance(one, str) for one in value):
        fix = f"give {option}={'+'.join(value)!r} for all of them, or call FUNCTION once for each"
        raise _MisfitError(expected, fix)
    raise _MisfitError(expected, "give one split, and call FUNCTION once for each")


def _of_types(*types: type, expected: str, fix: str) -> Callable[[str, Any], Any]:
    def rule(option: str, value: Any) -> Any:  # noqa: ARG001 - as all rules
        if value is None or (isinstance(value, types) and not isinstance(value, bool)):
            return value
        raise _MisfitError(expected, fix)

    return rule


def _state(option: str, value: Any) -> Any:
    if value is None or isinstance(value, State):
        return value
    if isinstance(value, str | bytes):
        return State.from_json(value.decode() if isinstance(value, bytes) else value)
    raise _MisfitError(
        "a State, or the text of one", f"give {option}=pipeline.state_after(steps)"
    )  # fmt: skip


def _augment(option: str, value: Any) -> Any:
    if value is None or (callable(value) and hasattr(value, "numbers") and hasattr(value, "draws")):
        return value
    if hasattr(value, "draws"):
        raise _MisfitError(
            "an Augmentation", f"give {option}=my_datasets.augment.compose([{_shown(value)}])"
        )
    raise _MisfitError(
        "an Augmentation",
        "give augment=my_datasets.augment.standard_image(); functions go to pipeline(...).map(...)"
    )  # fmt: skip


def _tokenizer(option: str, value: Any) -> Any:
    if value is None or isinstance(value, Mapping):
        return value
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else "words.json"
    raise _MisfitError("{feature: file of its tokenizer}", f"give {option}={{'text': {path!r}}}")


def _reference(option: str, value: Any) -> Any:  # noqa: ARG001 - as all rules
    if isinstance(value, str | os.PathLike | DatasetReference | Plan):
        return value
    expected = "a dataset's name such as 'digits:1.*.*', or the directory of a prepared version"
    name = getattr(getattr(value, "info", None), "full_name", None)
    if name is not None:
        where = str(getattr(value, "data_dir", "its directory"))
        raise _MisfitError(expected, f"give pathlib.Path({where!r}), where {name} is")
    raise _MisfitError(expected, "give FUNCTION('digits'); my-datasets list shows what is prepared")


def _parts(option: str, value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_reference(option, one) for one in value]
    raise _MisfitError("a list of datasets or plans", f"give FUNCTION([{_shown(value)}, ...])")


_path = _of_types(
    str, os.PathLike, expected="a path; or None for the default", fix="give a path as a text"
)
_name = _of_types(str, expected="the name of a feature", fix="give one name, as a text")
_RULES: dict[str, Callable[[str, Any], Any]] = {
    "reference": _reference,
    "parts": _parts,
    "split": _split,
    "batch_size": _batch_size,
    "shuffle": _flag("the split's own rule"),
    "shuffle_window": _whole(1, none="all shards at once"),
    "seed": _whole(0, 2**64 - 1, none="a random one"),
    "epochs": _whole(1, none="no end"),
    "as_supervised": _flag("as the dataset declares"),
    "columns": _columns,
    "image_size": _pair,
    "image_dtype": _choice("float32", none=True),
    "crop": _choice(*get_args(CropKind), none=True),
    "undecodable": _choice(*get_args(Undecodable)),
    "tokenizer": _tokenizer,
    "pack": _whole(1, none="no rows of tokens"),
    "pack_split": _flag(),
    "bucket_by": _name,
    "bucket_window": _whole(1, none="64 batches"),
    "cache": _choice("none", "memory", "disk", "auto"),
    "cache_dir": _path,
    "shard": _shard,
    "remainder": _choice(*get_args(Remainder)),
    "drop_remainder": _flag(),
    "workers": _whole(1, none="as many as are worth it"),
    "prefetch": _whole(0, none="two"),
    "memory": _of_types(
        int, str, expected="bytes, or a size such as '4GiB'", fix="give memory='4GiB'"
    ),
    "data_dir": _path,
    "shards_dir": _path,
    "state": _state,
    "augment": _augment,
    "service": _of_types(
        str, expected="the URL of a dispatcher", fix="give service='grpc://localhost:5050'"
    ),
    "sharding": _choice("exact", "static", "dynamic", "off"),
    "shuffle_files": _flag(),
    "with_info": _flag(),
    "download": _flag(),
}


def _any(option: str, value: Any) -> Any:  # noqa: ARG001 - as all rules
    return value


# `load` takes what `tfds.load` does.
_RULES_OF: dict[str, dict[str, Callable[[str, Any], Any]]] = {
    "load": {
        "split": _any,
        "batch_size": _whole(1, none="single examples", also=(-1,)),
        "as_supervised": _flag(),
    },
    "source": {"as_supervised": _flag()},
    "grain_dataset": {"as_supervised": _flag()},
    "torch_loader": {"workers": _whole(0, none="no processes")},
}
_ONLY_PIPELINE = ("augment", "service", "sharding", "deadline")
