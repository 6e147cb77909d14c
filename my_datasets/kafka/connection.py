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
from typing import TYPE_CHECKING

from my_datasets.core.logs import get_logger
from my_datasets.dependencies import missing_dependency
from my_datasets.errors import InvalidOptionError, StreamError, StreamUnavailableError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

# The topic names that Kafka allows (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@,\[\]]+)(:\d{1,5})?")
_SCHEME = "kafka://"

_SECRET = re.compile(
    r"password|passphrase|secret|credential|token|\.pem$|jaas|oauthbearer\.config|api\.?key", re.I
)
HIDDEN = "***"

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
# librdkafka repeats the same message at each attempt to connect, twenty times a second.
_QUIET = logging.DEBUG

_NOT_THERE = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT"})
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
        """Parses an address.

        Args:
          url: For example `kafka://broker:9092/topic`; the port defaults to 9092.

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
        fits = all(_BROKER.fullmatch(one) for one in brokers.split(","))
        if not url.startswith(_SCHEME) or not slash or not fits or not _is_name(topic):
            raise InvalidOptionError(
                f"{url!r} is not the address of a topic.",
                "Expected: kafka://BROKER[:PORT][,BROKER[:PORT]...]/TOPIC",
                fix="write it as kafka://localhost:9092/clicks",
            )
        return cls(brokers, topic)


def _is_name(topic: str) -> bool:
    return bool(_TOPIC.fullmatch(topic)) and topic not in (".", "..")


def is_secret(option: str) -> bool:
    """Returns whether the value of a librdkafka option must not be shown."""
    return bool(_SECRET.search(option))


class Redactor:
    """Removes the values of secret options from texts."""

    def __init__(self, options: Mapping[str, object]) -> None:
        """Collects the secrets among librdkafka's options."""
        values = {str(value) for name, value in options.items() if is_secret(name) and value}
        # Longest first, because one secret may be part of another.
        self._values = sorted(values, key=len, reverse=True)

    def __call__(self, text: object) -> str:
        """Returns the text with each secret replaced by `***`."""
        found = str(text)
        for value in self._values:
            found = found.replace(value, HIDDEN)
        return found


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
      address: The topic's address.
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

    @property
    def redact(self) -> Redactor:
        """A function that removes this connection's secrets from texts."""
        return Redactor(self.options)

    def shown(self) -> dict[str, str]:
        """Returns the options for display, without secrets."""
        return {k: HIDDEN if is_secret(k) else str(v) for k, v in sorted(self.options.items())}

    def consumer(
        self, settings: Mapping[str, object], on_error: Callable[["KafkaError"], None] | None = None
    ) -> "Consumer":
        """Returns a consumer that commits nothing automatically.

        Args:
          settings: Further options, set by this package.
          on_error: Called with errors, in the polling thread.

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
            found: Consumer = module.Consumer(given)
        except (module.KafkaException, TypeError, ValueError) as error:
            raise InvalidOptionError(
                "Kafka's client rejects these options.",
                f"It says: {self.redact(message_of(error))}",
                fix="correct them; their names are librdkafka's, such as security.protocol",
            ) from None
        return found

    def admin(self) -> "AdminClient":
        """Returns an admin client, to query topics."""
        given = {
            **self.options,
            "bootstrap.servers": self.address.brokers,
            "logger": _Logger(self.redact),
        }
        found: AdminClient = self.admin_module().AdminClient(given)
        return found

    @staticmethod
    def admin_module() -> ModuleType:
        """Returns the module `confluent_kafka.admin`."""
        return importlib.import_module("confluent_kafka.admin")

    def failed(self, error: object, *facts: str) -> StreamError:
        """Returns the exception for a `KafkaError`, or for an exception that contains one."""
        said = self.redact(message_of(error))
        name = name_of(error)
        problem, said = f"Kafka: {self.address} cannot be read.", f"It says: {said} ({name})"
        if name in _NOT_THERE:
            fix = "check that the brokers run and can be reached"
            return StreamUnavailableError(problem, *facts, said, fix=fix)
        fix = _FIXES.get(name, "see Kafka's message")
        return StreamError(problem, *facts, said, fix=fix)

    def describe(self, consumer: "Consumer", reported: Collection[object] = ()) -> "Topic":
        """Returns the cluster's description of the topic.

        Args:
          consumer: A consumer of this connection.
          reported: The errors its `on_error` received: the reason if there is no answer.

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
                telling = [one for one in list(reported) if is_permanent(one)]
                if telling or not is_outage(error) or time.monotonic() > end:
                    raise self.failed([*telling, error][0]) from None
        topic = found.topics.get(name)
        if topic is None or topic.error is not None:
            raise self.failed(topic.error if topic is not None else "there is no such topic")
        return Topic(str(found.cluster_id), name, tuple(sorted(topic.partitions)))


@dataclass(frozen=True)
class Topic:
    """A topic, as described by its cluster.

    Attributes:
      cluster: The cluster's ID, which does not change when brokers move.
      name: The topic's name.
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
    return name_of(error) in _NOT_THERE


def name_of(error: object) -> str:
    """Returns the name, such as `_TRANSPORT`, of a `KafkaError` or of the one in an exception."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(inner.name()) if hasattr(inner, "name") else type(inner).__name__


def message_of(error: object) -> str:
    """Returns the message of a `KafkaError` or of the one in an exception."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


class _Logger:
    """librdkafka's logger: logs at debug level only, because outages are logged once, elsewhere."""

    def __init__(self, redact: Redactor) -> None:
        self._redact = redact

    def log(self, _level: int, message: str, *arguments: object) -> None:
        if _log.isEnabledFor(_QUIET):
            _log.log(_QUIET, "%s", self._redact(message % arguments))
