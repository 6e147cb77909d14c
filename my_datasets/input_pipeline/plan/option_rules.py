"""Rules that validate single options and convert them to the values that are used."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from my_datasets.core.reference import DatasetReference
from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError, nearest
from my_datasets.input_pipeline.order.state import State
from my_datasets.input_pipeline.plan.plan import Plan
from my_datasets.printable import PrintableError

# Takes an option's name and its value; returns the value to use.
Rule = Callable[[str, object], object]
_SHOWN = 60
_NAME = "a dataset's name such as 'digits:1.*.*'"
_DATASET = f"{_NAME}, or the directory of a prepared version"
_MOST_AT_ONCE = 2**31 - 1


class OptionError(PrintableError):
    """An invalid value; the arguments are what is expected, and how to fix it."""


def shown(value: object) -> str:
    """Returns a value for a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def whole(
    least: int,
    most: int | None = None,
    *,
    none: str = "",
    also: Sequence[int] = (),
    words: Sequence[str] = (),
) -> Rule:
    """Returns the rule for a whole number within bounds, or one of other numbers or words.

    If None is valid, `none` says what it means.
    """

    def rule(option: str, value: object) -> object:
        if (value is None and none) or (isinstance(value, str) and value in words):
            return value
        if isinstance(value, Integral) and not isinstance(value, bool):
            given = int(value)
            if given in also or (least <= given and (most is None or given <= most)):
                return given
        bounds = f"from {least}" if most is None else f"from {least} to {most:,}"
        expected = f"a whole number {bounds}" + "".join(f", or {word!r}" for word in words)
        expected += f"; or None for {none}" if none else ""
        number = number_in(value)
        if number is None:
            raise OptionError(expected, f"give such a number, or leave {option} out")
        near = max(number, least)
        near = near if most is None else min(near, most)
        raise OptionError(expected, f"give {option}={near}")

    return rule


def number_in(value: object) -> int | None:
    """Returns the whole number that a value stands for; None if there is none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # of NumPy or PyTorch
        value = value.item()
    if isinstance(value, bool):
        return None
    if isinstance(value, Integral):
        return int(value)
    try:
        number = float(value) if isinstance(value, str | Real) else float("nan")
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def real(
    least: float, most: float = math.inf, *, above: bool = False, words: tuple[str, ...] = ()
) -> Rule:
    """Returns the rule for a number within bounds, or a word; `above` excludes the lower bound."""

    def rule(option: str, value: object) -> object:
        if isinstance(value, str) and value in words:
            return value
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
            number = float(value)
            if (number > least if above else number >= least) and number <= most:
                return number
        bounds = f" {'above' if above else 'from'} {least:g}" if math.isfinite(least) else ""
        bounds += f" to {most:g}" if math.isfinite(most) else ""
        either = "".join(f", or {word!r}" for word in words)
        raise OptionError(f"a number{bounds}{either}", f"give {option} such a number")

    return rule


def batch_size(option: str, value: object) -> object:
    """The rule for batch_size."""
    if value is None:
        raise OptionError(
            "a whole number from 1",
            f"give {option}=32; single examples come from my_datasets.source(...)",
        )
    return whole(1, _MOST_AT_ONCE)(option, value)


def flag(none: str = "") -> Rule:
    """Returns the rule for True or False; if None is valid, `none` says what it means."""

    def rule(option: str, value: object) -> object:
        if isinstance(value, bool) or (value is None and none):
            return value
        if type(value).__name__ in ("bool_", "bool"):  # NumPy's
            return bool(value)
        is_no = str(value).strip().lower() in ("no", "false", "off", "none", "0", "")
        fix = f"give {option}={not is_no}"
        if option == "shuffle" and isinstance(value, Integral):
            fix = "give shuffle=True: there is no buffer, all examples are permuted"
        raise OptionError("True or False" + (f"; or None for {none}" if none else ""), fix)

    return rule


def choice(*names: str, none: bool = False) -> Rule:
    """Returns the rule for one of several texts, and for None if it is valid."""

    def rule(option: str, value: object) -> object:
        if (value is None and none) or (isinstance(value, str) and value in names):
            return value
        expected = ", ".join([*map(repr, names), *(["None"] if none else [])])
        near = names[0]
        if isinstance(value, str):
            near = next((one for one in names if repr(one) in nearest(value, names)), near)
        elif option == "cache" and value is True:
            near = "memory"
        raise OptionError(f"one of {expected}", f"use {option}={near!r}")

    return rule


def image_size(option: str, value: object) -> object:
    """The rule for the size of images."""
    found = _numbers(value, Integral)
    if value is None or len(found) == 2:
        return None if value is None else tuple(map(int, found))
    side = number_in(value) or 224
    raise OptionError(
        "(height, width), two whole numbers of pixels", f"give {option}=({side}, {side})"
    )


def shard(option: str, value: object) -> object:
    """The rule for a host's part."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    found = _numbers(value, Integral)
    if len(found) == 2:
        return tuple(map(int, found))
    raise OptionError(
        "(index, count), 'auto' or None",
        "use 'auto', or give the number of this host, from 0, and the number of hosts: "
        f"{option}=(0, {number_in(value) or 2})",
    )


def crop_area(option: str, value: object) -> object:
    """The rule for the smallest and largest fraction of an image's area."""
    found = _numbers(value, Real)
    if len(found) == 2 and 0 < found[0] <= found[1] <= 1:
        return tuple(map(float, found))
    raise OptionError(
        "(least, most), parts of an image's area, above 0 and up to 1", f"give {option}=(0.08, 1.0)"
    )


def weights(option: str, value: object) -> object:  # noqa: ARG001 - as all rules
    """The rule for the weights of a mixture."""
    found = None if value is None else _numbers(value, Real)
    if found is None or (found and all(math.isfinite(one) and one > 0 for one in found)):
        return found
    raise OptionError(
        "a list with a number above 0 for each dataset",
        "give such numbers, and leave out datasets that you do not want",
    )


def _numbers(value: object, kind: type) -> list[Any]:
    """Returns a list's numbers as Python's own; empty if it is not a list of such numbers."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return []
    found = [one.item() if isinstance(one, np.generic) else one for one in value]
    are_fit = all(isinstance(one, kind) and not isinstance(one, bool) for one in found)
    return found if are_fit else []


def missing(option: str, value: object) -> object:
    """The rule for the value of missing features."""
    if isinstance(value, str) and value in ("tfds", "mask"):
        return value
    expected = "'tfds', 'mask', or the value to use for each feature's missing values"
    if isinstance(value, Mapping) and value and all(isinstance(one, str) for one in value):
        found = {
            str(name): one.item() if isinstance(one, np.generic) else one
            for name, one in value.items()
        }
        for feature, one in found.items():
            if not isinstance(one, bool | int | float | str | bytes):
                raise OptionError(expected, f"give {feature!r} a number or a text")
        return found
    near = "mask"
    if isinstance(value, str):
        near = next((one for one in ("tfds", "mask") if repr(one) in nearest(value, [one])), near)
    raise OptionError(expected, f"use {option}={near!r}, or {option}={{'age': -1}}")


def columns(option: str, value: object) -> object:
    """The rule for names of features."""
    expected = "a list of names of features; or None for all"
    if isinstance(value, str):
        names = [one.strip() for one in value.split(",")]
        raise OptionError(expected, f"give {option}={names!r}")
    if value is None:
        return None
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise OptionError(expected, f"give {option}=['image', 'label']")
    # The order of a set differs between processes.
    found = sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
    wrong = [one for one in found if not isinstance(one, str)]
    if wrong or not found:
        raise OptionError(expected, f"give names, not {wrong[0]!r}" if wrong else "leave it out")
    names = [str(one) for one in found]
    twice = [one for i, one in enumerate(names) if one in names[:i]]
    if twice:
        raise OptionError(f"{expected}, each once", f"give {twice[0]!r} once")
    return names


def split(option: str, value: object) -> object:
    """The rule for a split or slice."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "to_absolute"):
        return value
    expected = "one split or slice, such as 'train[:80%]', or tfds.core.ReadInstruction"
    if isinstance(value, Sequence) and value and all(isinstance(one, str) for one in value):
        fix = f"give {option}={'+'.join(value)!r} for all of them, or call FUNCTION once for each"
        raise OptionError(expected, fix)
    raise OptionError(expected, "give one split, and call FUNCTION once for each")


def memory(option: str, value: object) -> object:
    """The rule for a size in bytes."""
    expected = "bytes, or a size such as '500M' or '4GiB'"
    if value is None:
        return None
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0:
        return int(value)
    if isinstance(value, str):
        try:
            return in_bytes(value)
        except InvalidOptionError:
            pass
    raise OptionError(expected, f"give {option}='4GiB'")


def of_types(*types: type, expected: str, fix: str) -> Rule:
    """Returns the rule for None, and values of these types."""

    def rule(option: str, value: object) -> object:  # noqa: ARG001 - as all rules
        if value is None or (isinstance(value, types) and not isinstance(value, bool)):
            return value
        raise OptionError(expected, fix)

    return rule


def state(option: str, value: object) -> object:
    """The rule for a saved position."""
    if value is None or isinstance(value, State):
        return value
    if isinstance(value, str | bytes):
        return State.from_json(value.decode() if isinstance(value, bytes) else value)
    raise OptionError("a State, or the text of one", f"give {option}=pipeline.state_after(steps)")


def augment(option: str, value: object) -> object:
    """The rule for an augmentation."""
    if value is None or (callable(value) and hasattr(value, "numbers") and hasattr(value, "draws")):
        return value
    if hasattr(value, "draws"):
        fix = f"give {option}=my_datasets.augment.compose([{shown(value)}])"
    else:
        fix = f"give {option}=my_datasets.augment.standard_image(); "
        fix += "functions go to pipeline(...).map(...)"
    raise OptionError("an Augmentation", fix)


def tokenizer(option: str, value: object) -> object:
    """The rule for the files of tokenizers."""
    expected = "{feature: file of its tokenizer}"
    if value is None:
        return None
    if isinstance(value, Mapping) and value and all(
        isinstance(name, str) and isinstance(path, str | os.PathLike)
        for name, path in value.items()
    ):  # fmt: skip
        return dict(value)
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else "words.json"
    raise OptionError(expected, f"give {option}={{'text': {path!r}}}")


def reference(option: str, value: object) -> object:  # noqa: ARG001 - as all rules
    """The rule for a dataset."""
    if isinstance(value, str | os.PathLike | DatasetReference | Plan):
        return value
    fix = "give FUNCTION('digits'); my-datasets list shows what is prepared"
    full_name = getattr(getattr(value, "info", None), "full_name", None)
    if full_name is not None:
        where = str(getattr(value, "data_dir", "its directory"))
        fix = f"give pathlib.Path({where!r}), where {full_name} is"
    raise OptionError(_DATASET, fix)


def no_plan(option: str, value: object) -> object:
    """The rule for a dataset where a plan is not accepted."""
    if isinstance(value, Plan):
        raise OptionError(
            _DATASET, "give that; batches(plan), pipeline(plan) and torch_loader(plan) take a plan"
        )
    return reference(option, value)


def name_to_load(option: str, value: object) -> object:
    """The rule for a dataset that TFDS loads, which needs a name."""
    if isinstance(value, os.PathLike):
        raise OptionError(
            _NAME,
            f"tfds.builder_from_directory({os.fspath(value)!r}).as_dataset() reads a directory, "
            "and so does my_datasets.pipeline",
        )
    return no_plan(option, value)


def parts(option: str, value: object) -> object:
    """The rule for the datasets of a mixture."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [reference(option, one) for one in value]
    raise OptionError("a list of datasets or plans", f"give FUNCTION([{shown(value)}, ...])")


path = of_types(
    str, os.PathLike, expected="a path; or None for the default", fix="give a path as a text"
)
name = of_types(str, expected="the name of a feature", fix="give one name, as a text")
service = of_types(
    str, expected="the URL of a dispatcher", fix="give service='grpc://localhost:5050'"
)
