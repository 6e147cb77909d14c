"""The address of a topic: `kafka://broker:9092,broker2:9092/topic`."""

import re
from dataclasses import dataclass

from my_datasets.errors import InvalidOptionError, explain

# The topic names that Kafka allows (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@,\[\]]+)(:\d{1,5})?")
_SCHEME = "kafka://"


@dataclass(frozen=True)
class TopicAddress:
    """The address of a topic.

    Attributes:
      brokers: Some of the cluster's brokers, comma-separated; any of them knows the others.
      topic: The topic's name.
    """

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
                explain(
                    "The address of the topic has a user or a password in it.",
                    fix="give them as options: sasl.username, sasl.password",
                )
            )
        brokers, slash, topic = url.removeprefix(_SCHEME).partition("/")
        fits = all(_BROKER.fullmatch(one) for one in brokers.split(","))
        if not url.startswith(_SCHEME) or not slash or not fits or not _is_name(topic):
            raise InvalidOptionError(
                explain(
                    f"{url!r} is no address of a topic.",
                    "Expected: kafka://BROKER[:PORT][,BROKER[:PORT]...]/TOPIC",
                    fix="write it as kafka://localhost:9092/clicks",
                )
            )
        return cls(brokers, topic)


def _is_name(topic: str) -> bool:
    return bool(_TOPIC.fullmatch(topic)) and topic not in (".", "..")
