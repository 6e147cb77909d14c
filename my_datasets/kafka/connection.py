"""Connects to a cluster: parses addresses, checks options, and creates consumers.

Credentials are kept out of logs, errors and `repr`.
"""

import importlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from my_datasets.core.logs import get_logger
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import InvalidOptionError, StreamError, StreamUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

# The topic names that Kafka allows (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@,\[\]]+)(:\d{1,5})?")
_SCHEME = "kafka://"

_SECRET = re.compile(
    r"password|passphrase|secret|credential|token|\.pem$|jaas|oauthbearer\.config|api\.?key", re.I
)

_log = get_logger(__name__)
# Options that this package sets because its guarantees depend on them; and what to use instead.
_OURS = {
    "bootstrap.servers": "the address: kafka://BROKER:PORT/TOPIC",
    "metadata.broker.list": "the address: kafka://BROKER:PORT/TOPIC",
    "group.id": "group",
    "auto.offset.reset": "start, and on_lost",
    "enable.auto.commit": "commit_seconds",
    "enable.auto.offset.store": "commit_seconds",
    "enable.partition.eof": "until",
    "partition.assignment.strategy": "nothing: it is cooperative-sticky",
    "queued.max.messages.kbytes": "memory",
    "error_cb": "nothing: errors are raised, outages logged",
    "logger": "the logger my_datasets.kafka.connection",
    "log_cb": "the logger my_datasets.kafka.connection",
    "on_commit": "nothing: failures are logged",
}
# Seconds within which a cluster must first answer.
ANSWER_SECONDS = 30.0
# Seconds of each attempt within that time; the reason of a failure is only known between attempts.
_ASK_SECONDS = 2.0
# Milliseconds until librdkafka fetches again after its queue was full. Its default of one second is
# longer than it takes to empty the queue.
_FULL_MS = 20

_OUTAGES = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"})
_FIXES = {
    "_AUTHENTICATION": "correct sasl.username, sasl.password, sasl.mechanism",
    "SASL_AUTHENTICATION_FAILED": "correct sasl.username, sasl.password, sasl.mechanism",
    "_SSL": "correct ssl.ca.location and security.protocol",
    "UNKNOWN_TOPIC_OR_PART": "correct the topic's name, or make the topic",
    "_UNKNOWN_TOPIC": "correct the topic's name, or make the topic",
    "TOPIC_AUTHORIZATION_FAILED": "let this user read the topic",
    "GROUP_AUTHORIZATION_FAILED": "let this user use the group",
}


@dataclass(frozen=True)
class TopicAddress:
    """The address of a topic: some of the cluster's brokers, comma-separated; and its name."""

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.brokers}/{self.topic}"

    @classmethod
    def parse(cls, url: str) -> "TopicAddress":
        """Parses an address such as `kafka://broker:9092/topic`; the port defaults to 9092.

        Raises:
          InvalidOptionError: It is not an address of a topic, or contains a user or a password.
        """
        if "@" in url:
            # Do not show the URL: it may contain a password.
            raise InvalidOptionError(
                "The address of the topic contains a user or a password.",
                fix="pass them as options: sasl.username, sasl.password",
            )
        brokers, slash, topic = url.removeprefix(_SCHEME).partition("/")
        is_valid = url.startswith(_SCHEME) and slash and topic not in (".", "..")
        is_valid = is_valid and all(_BROKER.fullmatch(one) for one in brokers.split(","))
        if not is_valid or not _TOPIC.fullmatch(topic):
            raise InvalidOptionError(
                f"{url!r} is not the address of a topic.",
                "Expected: kafka://BROKER[:PORT][,BROKER[:PORT]...]/TOPIC",
                fix="write it as kafka://localhost:9092/clicks",
            )
        return cls(brokers, topic)


def kafka() -> ModuleType:
    """Imports and returns `confluent_kafka`; raises `MissingDependencyError` if not installed."""
    try:
        import confluent_kafka
    except ModuleNotFoundError as error:
        raise missing_dependency("confluent_kafka", needed_for="Kafka") from error
    return confluent_kafka


@dataclass(frozen=True)
class Connection:
    """How to connect to a topic.

    Attributes:
      options: librdkafka's options: `security.protocol`, `sasl.password`, ...; `repr` omits them.
    """

    address: TopicAddress
    options: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises `InvalidOptionError` for an option that this package sets."""
        for name in self.options:
            if name in _OURS:
                raise InvalidOptionError(
                    f"The Kafka option {name} is set by this package.",
                    fix=f"leave it out, and use {_OURS[name]}",
                )

    def redact(self, text: object) -> str:
        """Returns a text with the values of secret options replaced by `***`."""
        options = self.options.items()
        values = {str(value) for name, value in options if _SECRET.search(name) and value}
        found = str(text)
        # Longest first, because one secret may be part of another.
        for value in sorted(values, key=len, reverse=True):
            found = found.replace(value, "***")
        return found

    def consumer(
        self, settings: Mapping[str, object], on_error: Callable[["KafkaError"], None] | None = None
    ) -> "Consumer":
        """Returns a consumer that commits nothing automatically.

        `settings` are further options, set by this package. `on_error` is called with errors, in
        the polling thread.

        Raises:
          InvalidOptionError: librdkafka rejects an option.
          MissingDependencyError: confluent-kafka is not installed.
        """
        module = kafka()
        given = {
            # Required even without a group; no group is created because nothing is committed.
            "group.id": f"my_datasets-{uuid.uuid4()}",
            "fetch.queue.backoff.ms": _FULL_MS,
            **self.options,
            "bootstrap.servers": self.address.brokers,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "logger": _Logger(self.redact),
            "error_cb": on_error or (lambda _: None),
            **settings,
        }
        try:
            return module.Consumer(given)  # type: ignore[no-any-return]
        except (module.KafkaException, TypeError, ValueError) as error:
            raise InvalidOptionError(
                "Kafka's client rejects these options.",
                f"It says: {self.redact(message_of(error))}",
                fix="correct them; their names are librdkafka's, such as security.protocol",
            ) from None

    def is_compacted(self, topic: str) -> bool:
        """Returns whether a topic is compacted; True if its configuration cannot be read."""
        module = importlib.import_module("confluent_kafka.admin")
        client = module.AdminClient(
            {
                **self.options,
                "bootstrap.servers": self.address.brokers,
                "logger": _Logger(self.redact),
            }
        )
        resource = module.ConfigResource(module.ResourceType.TOPIC, topic)
        try:
            found = client.describe_configs([resource])[resource].result(ANSWER_SECONDS)
        except (kafka().KafkaException, TimeoutError):
            return True
        return "compact" in str(found["cleanup.policy"].value)

    def failed(self, error: object, *facts: str) -> StreamError:
        """Returns the exception for a `KafkaError`, or for an exception that contains one."""
        name = name_of(error)
        problem = f"Kafka: {self.address} cannot be read."
        facts = (*facts, f"It says: {self.redact(message_of(error))} ({name})")
        if name in _OUTAGES:
            fix = "check that the brokers run and can be reached"
            return StreamUnavailableError(problem, *facts, fix=fix)
        return StreamError(problem, *facts, fix=_FIXES.get(name, "see Kafka's message"))

    def describe(self, consumer: "Consumer", reported: Collection[object] = ()) -> "Topic":
        """Returns the cluster's description of the topic.

        `reported` are the errors that the consumer's `on_error` received: the reason if there is no
        answer.

        Raises:
          StreamError: The topic does not exist, or access is denied.
          StreamUnavailableError: No broker answers.
        """
        module = kafka()
        name = self.address.topic
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                found = consumer.list_topics(name, timeout=_ASK_SECONDS)
                break
            except module.KafkaException as error:
                consumer.poll(0)  # calls on_error with pending errors
                permanent = [one for one in list(reported) if is_permanent(one)]
                if permanent or not is_outage(error) or time.monotonic() > end:
                    raise self.failed([*permanent, error][0]) from None
        topic = found.topics.get(name)
        if topic is None or topic.error is not None:
            raise self.failed(topic.error if topic is not None else "there is no such topic")
        return Topic(str(found.cluster_id), name, tuple(sorted(topic.partitions)))


@dataclass(frozen=True)
class Topic:
    """A topic, as described by its cluster.

    Attributes:
      cluster: The cluster's ID, which does not change when brokers move.
      partitions: The numbers of its partitions.
    """

    cluster: str
    name: str
    partitions: tuple[int, ...]


def is_permanent(error: object) -> bool:
    """Returns whether an error names a cause that waiting does not fix."""
    return name_of(error) in _FIXES


def is_outage(error: object) -> bool:
    """Returns whether an error means that brokers cannot be reached."""
    return name_of(error) in _OUTAGES


def name_of(error: object) -> str:
    """Returns the name, such as `_TRANSPORT`, of a `KafkaError` or of the one in an exception."""
    inner = _inner(error)
    return str(inner.name()) if hasattr(inner, "name") else type(inner).__name__


def message_of(error: object) -> str:
    """Returns the message of a `KafkaError` or of the one in an exception."""
    inner = _inner(error)
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def _inner(error: object) -> Any:
    return error.args[0] if isinstance(error, Exception) and error.args else error


class _Logger:
    """librdkafka's logger: logs at debug level only, because outages are logged once, elsewhere."""

    def __init__(self, redact: Callable[[object], str]) -> None:
        self._redact = redact

    def log(self, _level: int, message: str, *arguments: object) -> None:
        # librdkafka repeats the same message at each attempt to connect, twenty times a second.
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s", self._redact(message % arguments))
