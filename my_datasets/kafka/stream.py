"""`stream`: batches of decoded examples from a topic."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from my_datasets.core.sizes import in_bytes
from my_datasets.errors import InvalidOptionError, UnknownOptionError, nearest
from my_datasets.input_pipeline.decode.decoder import Decoder
from my_datasets.kafka import payloads
from my_datasets.kafka.batches import MessageBatches, Recipe
from my_datasets.kafka.connection import Connection, TopicAddress
from my_datasets.kafka.decoder import Decoding
from my_datasets.kafka.features import Features, check_shapes, described
from my_datasets.kafka.offsets import TopicPosition, TopicRange, When
from my_datasets.kafka.payloads import Leaves

if TYPE_CHECKING:
    from my_datasets.kafka.tf_dataset import MessageDataset

PayloadName = Literal["example", "json", "avro"]


class StreamOptions(TypedDict, total=False):
    """The options of `stream`; see there."""

    features: Features
    group: str | None
    batch_size: int
    payload: PayloadName
    schema: payloads.AvroSchema | None
    start: When
    until: Literal["end"] | None
    state: TopicPosition | str | None
    shard: tuple[int, int]
    as_supervised: bool | tuple[str, str]
    columns: Sequence[str] | None
    image_size: tuple[int, int] | None
    max_wait: float | None
    drop_remainder: bool
    quarantine: str | os.PathLike[str] | None
    max_quarantined: float
    on_lost: Literal["fail", "skip"]
    idle_timeout: float | None
    patience: float
    commit_seconds: float
    memory: int | str
    workers: int
    options: Mapping[str, object] | None
    data_dir: str | os.PathLike[str] | None


@overload
def stream(
    url: str, *, as_numpy: Literal[False] = False, **options: Unpack[StreamOptions]
) -> "MessageDataset": ...


@overload
def stream(
    url: str, *, as_numpy: Literal[True], **options: Unpack[StreamOptions]
) -> MessageBatches: ...


def stream(
    url: str, *, as_numpy: bool = False, **options: Unpack[StreamOptions]
) -> "MessageDataset | MessageBatches":
    """Streams batches of decoded examples from a Kafka topic; unbounded by default.

    Args:
      url: The topic: `kafka://BROKER[:PORT][,BROKER...]/TOPIC`.
      as_numpy: Return an iterator over NumPy arrays instead of a `tf.data.Dataset`; this does not
        import TensorFlow.
      options: All but `features` have defaults:
        features: What an example is: `tfds.features.FeaturesDict({...})`, a dict of features, or a
          prepared dataset such as `"digits:1.*.*"` with the same features.
        group: The consumer group; its members share the partitions, and each message is delivered
          at least once. None to read all partitions (or those of `shard`), and to keep offsets only
          where `state` is saved.
        batch_size: Examples in a batch; 32.
        payload: What a message is: `"example"` (a `tf.Example` as TFDS writes it), `"json"` or
          `"avro"`.
        schema: The Avro schema: a dict or JSON text; or several, by their IDs in a schema registry.
        start: Where to begin partitions without a position in the group or `state`: `"earliest"`
          (the default), `"latest"`, a `datetime` with a time zone, or `{partition: offset}`.
        until: `"end"` to stop at the topic's current end; None (the default) to continue.
        state: Where to begin, from `state()` of an iterator or dataset, or its text.
        shard: `(index, count)`: a part of the partitions, for several readers without a group.
        as_supervised: Return `(input, target)`: True for those that the prepared dataset declares,
          or the names of the two.
        columns: The features to read; None for all.
        image_size: `(height, width)` to which images are resized.
        max_wait: Seconds after which an incomplete batch is returned; None for never.
        drop_remainder: Whether to drop an incomplete batch at the end.
        quarantine: A file to which messages that cannot be decoded are appended; without one they
          are errors.
        max_quarantined: The fraction of the latest 10,000 messages that may be quarantined; 0.01.
        on_lost: If messages to be read are gone: `"fail"`, or `"skip"` with a warning.
        idle_timeout: Seconds without a message after which the iteration ends; None for never.
        patience: Seconds without a broker after which to fail; 600.
        commit_seconds: Seconds between commits to the group; 1.
        memory: The maximum number of bytes to read ahead, such as `"256M"`; 128 MiB.
        workers: Threads that decode; 1.
        options: librdkafka's own options: `security.protocol`, `sasl.username`, ...
        data_dir: The data directory of the prepared dataset.

    Returns:
      A dataset of dicts, or of `(input, target)`, with the methods `batches`, `iterator`, `state`,
      `commit` and `close`; or an iterator with those that apply.

    Raises:
      UnknownOptionError: There is no such option.
      InvalidOptionError: An option is invalid.
      FeatureError: A feature does not exist, or cannot be read or batched.
      MissingDependencyError: confluent-kafka, or fastavro, is not installed.
      PlanError: `state` is not a position.
    """
    known = StreamOptions.__annotations__
    for option in options:
        if option not in known:
            raise UnknownOptionError(
                f"stream(...) has no option {option}=.",
                nearest(option, known) or f"Its options: {', '.join(known)}",
                fix="see help(my_datasets.stream)",
            )
    if "features" not in options:
        raise InvalidOptionError(
            "stream requires features.",
            fix="pass features=tfds.features.FeaturesDict({...}), or a prepared dataset's name",
        )
    recipe, state = _recipe(url, options)
    if as_numpy:
        return MessageBatches(recipe, state)
    check_shapes(recipe.decoding.decoder.tree, recipe.decoding.decoder.image_size)
    from my_datasets.kafka.tf_dataset import MessageDataset

    return MessageDataset(recipe, state)


def parser_of(
    name: str, tree: Leaves, schema: payloads.AvroSchema | None = None
) -> payloads.Json | payloads.Avro | None:
    """Returns the parser of messages; None if they are `tf.Example`s.

    Raises:
      InvalidOptionError: There is no such payload, or a schema is missing or unexpected.
      MissingDependencyError: fastavro is not installed.
    """
    if name not in ("example", "json", "avro"):
        raise InvalidOptionError(
            f"payload={name!r} is unknown.", fix="use 'example', 'json' or 'avro'"
        )
    if (schema is not None) != (name == "avro"):
        raise InvalidOptionError(
            f"payload={name!r} {'needs a' if name == 'avro' else 'takes no'} schema.",
            fix="give schema= with payload='avro', and only with that",
        )
    if schema is not None:
        return payloads.Avro(tree, schema)
    return payloads.Json(tree) if name == "json" else None


def _recipe(url: str, options: StreamOptions) -> tuple[Recipe, TopicPosition | None]:
    names = {one.name for one in dataclasses.fields(TopicRange)}
    given: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    reading = TopicRange(**{**given, "memory": in_bytes(options.get("memory", 128 << 20))})
    connection = Connection(TopicAddress.parse(url), dict(options.get("options") or {}))
    features = described(options["features"], options.get("data_dir"))
    tree = features.chosen(options.get("as_supervised", False), options.get("columns"))
    parser = parser_of(options.get("payload", "example"), features.tree, options.get("schema"))
    transcoder = None
    if parser is not None:
        # Only TFDS knows how features are encoded.
        from my_datasets.builders.encode.encoder import ExampleEncoder

        transcoder = payloads.Transcoder(parser, ExampleEncoder(features.loaded()))
    decoding = Decoding(Decoder(tree, options.get("image_size")), transcoder)
    quarantine = options.get("quarantine")
    recipe = Recipe(
        connection, reading, decoding, None if quarantine is None else os.fspath(quarantine),
        options.get("max_quarantined", 0.01),
    )  # fmt: skip
    state = options.get("state")
    return recipe, TopicPosition.from_json(state) if isinstance(state, str) else state
