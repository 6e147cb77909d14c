"""`features.json`: checks the classes that it names, and its form, before TFDS reads it.

TFDS imports the module of any class that the file names. So only TFDS's own feature classes count,
and those that a user has registered: both are code that runs anyway.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from my_datasets.core.json_types import Json
from my_datasets.errors import IncompleteVersionError, InvalidOptionError, UnregisteredFeatureError
from my_datasets.printable import PrintableError, clipped, reason
from my_datasets.storage.json_files import MalformedJsonError, parse_json, read_json

FILE_NAME = "features.json"
_TFDS = "tensorflow_datasets.core.features"
# For each of TFDS's classes, the arguments that files older than `feature.proto` may give it.
# Others are refused: `names_file`, for example, reads any file.
_ARGUMENTS: Mapping[str, frozenset[str]] = {
    f"{_TFDS}.{name}": frozenset(arguments.split())
    for name, arguments in {
        "audio_feature.Audio": "file_format shape dtype sample_rate lazy_decode",
        "bounding_boxes.BBoxFeature": "bbox_format",
        "class_label_feature.ClassLabel": "num_classes",
        "dataset_feature.Dataset": "feature length",
        "feature.Tensor": "shape dtype encoding",  # its name in TFDS 4.0 to 4.3
        "features_dict.FeaturesDict": "",  # the features themselves
        "image_feature.Image": "shape dtype encoding_format use_colormap",
        "labeled_image.LabeledImage": "shape dtype encoding_format use_colormap",
        "scalar.Scalar": "dtype",
        "sequence_feature.Sequence": "feature length",
        "tensor_feature.Tensor": "shape dtype encoding",
        "text_feature.Text": "use_encoder",
        "translation_feature.Translation": "languages",
        "translation_feature.TranslationVariableLanguages": "languages",
        "video_feature.Video": "shape encoding_format ffmpeg_extra_args",
    }.items()
}
TFDS_CLASSES = frozenset(_ARGUMENTS)
_OF_FEATURES = f"{_TFDS}.features_dict.FeaturesDict"
_registered: set[str] = set()

# The kinds in TFDS's `feature.proto`, and its other fields of more than one word, which its reader
# takes in two spellings.
_KINDS = frozenset({
    "jsonFeature", "featuresDict", "tensor", "classLabel", "image", "video", "audio",
    "boundingBox", "text", "translation", "sequence",
})  # fmt: skip
_FIELDS = {
    re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name): name
    for name in (
        *_KINDS, "pythonClassName", "valueRange", "numClasses", "encodingFormat", "useColormap",
        "ffmpegExtraArgs", "fileFormat", "sampleRate", "lazyDecode", "bboxFormat",
        "variableLanguagesPerExample",
    )
}  # fmt: skip
_CLASS_NAMES = ("pythonClassName", "python_class_name")
_TYPE = re.compile(r"[a-z][a-z0-9_]*")
# Maximum characters of an untrusted name in an error. A `tf.Example` has at most 2 GiB.
_MOST_VALUES = 1 << 31
_LONGEST_NAME = 1000

AnyFeature = TypeVar("AnyFeature", bound=type)
_T = TypeVar("_T")


class _HasJson(Protocol):
    """A `tfds.features.FeatureConnector`."""

    def to_json(self) -> object: ...


def register_feature(feature_class: AnyFeature) -> AnyFeature:
    """Registers a feature class of your own, so that metadata may name it.

    Whatever reads metadata, such as `load`, `pull`, `publish` and `verify`, refuses a feature class
    that is neither TFDS's nor registered. Call it, or decorate the
    class with it, in the module that defines the class; import that module before you read such a
    version, on the command line with `--imports`.

    Args:
      feature_class: A subclass of `tfds.features.FeatureConnector`.

    Returns:
      The class, so that it can be used as a decorator.

    Raises:
      InvalidOptionError: It is no feature class.
    """
    bases = getattr(feature_class, "__mro__", ())
    if not any(f"{one.__module__}.{one.__name__}" == f"{_TFDS}.feature.FeatureConnector"
               for one in bases):  # fmt: skip
        raise InvalidOptionError(
            f"{feature_class!r} is not a feature class.",
            "Expected: a subclass of tfds.features.FeatureConnector",
            fix="register the class itself, not an object of it",
        )
    _registered.add(f"{feature_class.__module__}.{feature_class.__name__}")
    _registered.update(feature_class.__dict__.get("ALIASES", ()))
    return feature_class


def register_classes_of(features: _HasJson) -> None:
    """Registers the classes of features that code has created, which is running anyway.

    Args:
      features: A `tfds.features.FeatureConnector`, with all that it holds.
    """
    _registered.update(name for _, name in _named(features.to_json(), ()))


def is_registered(name: str) -> bool:
    """Returns whether metadata may name a class, as `module.Class`."""
    return name in TFDS_CLASSES or name in _registered


def read_features(directory: Path) -> dict[str, Any]:
    """Returns the checked content of `features.json`, in TFDS's own spelling.

    Every reader of that file calls this first, TFDS included.

    Args:
      directory: Where the file is.

    Raises:
      FileNotFoundError: The file does not exist.
      UnregisteredFeatureError: It names a class that is neither TFDS's nor registered.
      IncompleteVersionError: It is not what TFDS writes.
    """
    return check_features(read_unchecked(directory), directory)


def read_unchecked(directory: Path) -> Json:
    """Returns the unchecked JSON of `features.json`, only for comparison with other such JSON."""
    with _explained(directory):
        found: Json = read_json(directory / FILE_NAME)
    return found


def check_features(given: object, directory: Path) -> dict[str, Any]:
    """Returns what `read_features` does, for the JSON of the file in a directory."""
    with _explained(directory):
        return _feature(given, (), str(directory / FILE_NAME))


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, UnregisteredFeatureError):
        raise
    except (OSError, MalformedJsonError, _MalformedError, RecursionError) as error:
        raise IncompleteVersionError(
            f"{directory / FILE_NAME} cannot be read.",
            f"Found: {reason(error)}",
            fix="build or pull the version again",
        ) from error


class FeatureNode(NamedTuple):
    """A feature without nested features, as `features.json` describes it.

    Attributes:
      path: The names from the top to it; empty if it is the whole example.
      feature: Its JSON.
      sequences: The JSON of the sequences around it, the outermost first.
      text: Its description, or that of the closest sequence around it that has no other features.
    """

    path: tuple[str, ...]
    feature: Mapping[str, Any]
    sequences: tuple[Mapping[str, Any], ...]
    text: str

    @property
    def lengths(self) -> tuple[int | None, ...]:
        """The lengths of the sequences around it; None for one that differs."""
        lengths = (int(one["sequence"].get("length", -1)) for one in self.sequences)
        return tuple(None if length < 0 else length for length in lengths)


def map_features(
    feature: Mapping[str, Any],
    make: Callable[[FeatureNode], _T],
    path: tuple[str, ...] = (),
    sequences: tuple[Mapping[str, Any], ...] = (),
    outer: str = "",
) -> Any:
    """Returns the result of `make` for each feature without nested features.

    Results are nested in dicts as examples are, in the order of their names: sequences of dicts
    become dicts. All other arguments are those of the feature's node, for the recursion.
    """
    text = str(feature.get("description", "")) or outer
    if "featuresDict" in feature:
        inner = feature["featuresDict"].get("features", {})
        return {
            name: map_features(inner[name], make, (*path, name), sequences)
            for name in sorted(inner)
        }  # fmt: skip
    if "sequence" in feature:
        around = (*sequences, feature)
        return map_features(feature["sequence"]["feature"], make, path, around, text)
    return make(FeatureNode(path, feature, sequences, text))


def feature_nodes(feature: Mapping[str, Any]) -> list[FeatureNode]:
    """Returns the features without nested features, in the order of their names."""
    found: list[FeatureNode] = []
    map_features(feature, found.append)
    return found


class _MalformedError(PrintableError, ValueError):
    """`features.json` is not what TFDS writes."""


def _feature(given: object, path: tuple[str, ...], file: str) -> dict[str, Any]:
    """Returns a feature as TFDS spells it.

    Args:
      given: The feature.
      path: The names from the top to it.
      file: Where it is, for messages.
    """
    if not isinstance(given, dict):
        raise _malformed(path, "it is no object")
    if "type" in given:
        return _of_old_tfds(given, path, file)
    found = _spelled(given, path)
    name = found.get("pythonClassName", "")
    _check_class(name, path, file)
    for text in ("description", "valueRange"):
        if not isinstance(found.get(text, ""), str):
            raise _malformed(path, f"its {text} is no text")
    kinds = sorted(kind for kind in _KINDS if kind in found)
    if len(kinds) != 1:
        raise _malformed(path, f"it is of {len(kinds)} kinds; expected one, such as 'tensor'")
    (kind,) = kinds
    found[kind] = _content(kind, found[kind], name, path, file)
    return found


def _content(
    kind: str, given: object, name: str, path: tuple[str, ...], file: str
) -> dict[str, Any]:
    """Returns what a feature says about its form."""
    if not isinstance(given, dict):
        raise _malformed(path, f"its {kind} is no object")
    found = _spelled(given, path)
    if kind == "featuresDict":
        inner = found.get("features", {})
        if not isinstance(inner, dict):
            raise _malformed(path, "its features are no object")
        for one in inner:
            _check_name(one, path)
        found["features"] = {one: _feature(inner[one], (*path, one), file) for one in inner}
    elif kind == "sequence":
        found["feature"] = _feature(found.get("feature"), path, file)
        if _whole_number(found.get("length", -1), "length", path) > _MOST_VALUES:
            raise _malformed(path, f"a sequence of {found['length']} fits into no record")
    elif kind == "jsonFeature":
        _check_arguments(name, _parsed(found.get("json", ""), path), path, file)
    else:
        for part in ("shape", "label"):
            if part in found:
                found[part] = _spelled(found[part], path)
        _check_form(found, path)
    return found


def _of_old_tfds(given: dict[str, Any], path: tuple[str, ...], file: str) -> dict[str, Any]:
    """Checks a feature as TFDS 4.0 to 4.3 wrote it, and returns it as it is."""
    name, content = given["type"], given.get("content")
    _check_class(name, path, file)
    proto = given.get("proto_cls")
    if not proto:
        _check_arguments(name, content, path, file)
        return given
    if isinstance(content, str):
        content = _parsed(content, path)
    kind = str(proto).rpartition(".")[2].removesuffix("Feature")
    kinds = {"FeaturesDict": "featuresDict", "Sequence": "sequence", "Json": "jsonFeature"}
    _content(kinds.get(kind, "tensor"), content, name, path, file)
    return given


def _check_arguments(name: str, given: object, path: tuple[str, ...], file: str) -> None:
    """Checks the arguments of a class that `feature.proto` does not define."""
    if not isinstance(given, dict):
        raise _malformed(path, "its content is no object")
    if name == _OF_FEATURES:
        for one, inner in given.items():
            _check_name(one, path)
            _feature(inner, (*path, one), file)
        return
    if name in _ARGUMENTS:
        other = sorted(set(given) - _ARGUMENTS[name])
        if other:
            first = clipped(other[0])
            raise _malformed(path, f"{name} is given {first!r}, which TFDS never writes")
        if "feature" in given:
            _feature(given["feature"], path, file)
        return
    for inner, other_name in _named(given, path):  # it may create features from these
        _check_class(other_name, inner, file)


def _check_class(name: object, path: tuple[str, ...], file: str) -> None:
    if not isinstance(name, str) or not name:
        raise _malformed(path, "it names no class")
    if is_registered(name):
        return
    where = f"the feature {clipped('/'.join(path))!r}" if path else "the example"
    name = clipped(name)
    raise UnregisteredFeatureError(
        f"{file} says that {where} is of the class {name!r}, which is not registered.",
        "Expected: a feature class of TFDS, or one registered with my_datasets. TFDS would "
        "import its module: metadata could run any code.",
        fix=f"if you trust it, call my_datasets.register_feature on the class in the module "
        f"that defines it ({name.rpartition('.')[0] or 'your_package.features'}), and import "
        "that module first: on the command line, --imports MODULE",
    )


def _named(given: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields all classes named in a JSON value, at any depth, with the names around them."""
    if isinstance(given, list):
        for one in given:
            yield from _named(one, path)
    if not isinstance(given, dict):
        return
    for member, value in given.items():
        is_old = member == "type" and "content" in given
        if isinstance(value, str) and (is_old or member in _CLASS_NAMES):
            yield path, value
        elif member in ("json", "content") and isinstance(value, str):
            try:
                inner = parse_json(value)
            except MalformedJsonError:
                continue
            yield from _named(inner, path)
        else:
            yield from _named(value, (*path, member))


def _spelled(given: object, path: tuple[str, ...]) -> dict[str, Any]:
    """Returns an object with TFDS's own names; null members count as absent."""
    if not isinstance(given, Mapping):
        raise _malformed(path, "a part of it is no object")
    found: dict[str, Any] = {}
    for name, value in given.items():
        known = _FIELDS[name] if name in _FIELDS else str(name)
        if known in found:
            raise _malformed(path, f"it has {known!r} in two spellings")
        if value is not None:
            found[known] = value
    return found


def _check_form(found: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Checks what a tensor, an image or the like says about its values."""
    for name in ("dtype", "encoding", "encodingFormat", "fileFormat", "bboxFormat"):
        if not isinstance(found.get(name, ""), str):
            raise _malformed(path, f"its {name} is no text")
    if found.get("dtype") and not _TYPE.fullmatch(found["dtype"]):
        raise _malformed(path, f"its dtype is {found['dtype'][:80]!r}")
    for name in ("numClasses", "sampleRate"):
        if name in found and _whole_number(found[name], name, path) < 0:
            raise _malformed(path, f"its {name} is less than 0")
    sizes = found.get("shape", {}).get("dimensions", [])
    if not isinstance(sizes, list):
        raise _malformed(path, "its shape is not as TFDS writes it")
    values = 1
    for size in sizes:
        values *= max(1, _whole_number(size, "shape", path))
    if values > _MOST_VALUES:
        raise _malformed(path, f"a value of it would have {values:,} numbers")
    languages = found.get("languages", [])
    if not isinstance(languages, list) or not all(isinstance(one, str) for one in languages):
        raise _malformed(path, "its languages are no texts")


def _whole_number(value: object, what: str, path: tuple[str, ...]) -> int:
    """Returns an int64, which `protobuf` writes as a string."""
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise TypeError
        found = int(value)
    except (ValueError, TypeError):
        raise _malformed(path, f"its {what} is {str(value)[:80]!r}; expected a number") from None
    if not -(1 << 63) <= found < 1 << 63:
        raise _malformed(path, f"its {what} has more than 64 bits")
    return found


def _check_name(name: str, path: tuple[str, ...]) -> None:
    """Checks a feature's name, from which TFDS makes file names and patterns."""
    if name in ("", ".", "..") or "\0" in name or len(name) > _LONGEST_NAME:
        raise _malformed((*path, name[:80]), "a feature cannot be called so")


def _parsed(text: object, path: tuple[str, ...]) -> object:
    if not isinstance(text, str):
        raise _malformed(path, "its JSON is no text")
    try:
        return parse_json(text)
    except MalformedJsonError as error:
        raise _malformed(path, f"its JSON cannot be read: {error}") from None


def _malformed(path: tuple[str, ...], found: str) -> _MalformedError:
    return _MalformedError(f"the feature {clipped('/'.join(path)) or '(the example)'}: {found}")
