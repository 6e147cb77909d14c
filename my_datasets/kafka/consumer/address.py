"""Where a topic is: `kafka://broker:9092,broker2:9092/topic`."""

import re
from dataclasses import dataclass

from my_datasets.errors import InvalidOptionError, explain

# What Kafka allows (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@,\[\]]+)(:\d{1,5})?")
_SCHEME = "kafka://"


@dataclass(frozen=True)
class TopicAddress:
    """A topic.

    Attributes:
      brokers: Some of the cluster's brokers, comma-separated: any one of them knows the others.
      topic: Its name.
    """

    brokers: str
    topic: str

    def __str__(self) -> str:
        return f"{_SCHEME}{self.brokers}/{self.topic}"

    @classmethod
    def parse(cls, url: str) -> "TopicAddress":
        """Returns the topic of an address.

        Args:
          url: Such as `kafka://broker:9092/topic`; 9092 is the port if there is none.

        Raises:
          InvalidOptionError: It is none, or has a password in it.
        """
        if "@" in url:
            # Not shown: what stands before it may be a password.
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
