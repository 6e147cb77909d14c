"""Brokers that do not answer: waited for, told once, and an error in the end."""

import time
from collections import deque
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.kafka.consumer.connection import Connection, is_outage, is_telling, kafka

_log = get_logger(__name__)

# How often brokers are asked during an outage, and how long an answer may take, in seconds.
_EVERY, _ANSWER = 1.0, 1.0
# A shorter one is not worth telling: connections that are not used are closed now and then.
_WORTH_TELLING = 5.0


class Outage:
    """Watches whether brokers answer."""

    def __init__(
        self, connection: Connection, consumer: Any, reported: deque[Any], patience: float
    ) -> None:
        """Begins without one.

        Args:
          connection: The topic's.
          consumer: Its consumer.
          reported: Where errors are put that the consumer tells of.
          patience: Seconds after which an outage is an error.
        """
        self._connection, self._consumer = connection, consumer
        self._reported, self._patience = reported, patience
        self._begin = self._next = 0.0
        self._reason: Any = None
        self._is_told = False

    @property
    def is_on(self) -> bool:
        """Whether there is one."""
        return self._reason is not None

    @staticmethod
    def is_one(error: Any) -> bool:
        """Returns whether an error is one that may pass when brokers are back."""
        return is_outage(error) or is_telling(error)

    def is_over(self) -> None:
        """Notes that a message came."""
        if self._is_told:
            away = time.monotonic() - self._begin
            _log.warning("%s answers again after %.0f s", self._connection.address, away)
        self._reason, self._is_told = None, False
        self._reported.clear()

    def look(self) -> None:
        """Looks what was reported; asks brokers, if some did not answer, whether they do again.

        Raises:
          StreamError: The outage has lasted too long, or a report says that waiting is no use.
        """
        while self._reported:
            error = self._reported.popleft()
            if error.fatal():
                raise self._connection.failed(error)
            if self.is_one(error):
                self._begins(error)
        now = time.monotonic()
        if self._reason is None or now < self._next:
            return
        self._next = now + _EVERY
        if self._answers():
            self.is_over()
        elif now - self._begin > self._patience:
            raise self._connection.failed(self._reason, f"For {now - self._begin:.0f} seconds")
        elif not self._is_told and now - self._begin > _WORTH_TELLING:
            self._is_told = True
            _log.warning(
                "%s does not answer; it is waited for, %.0f s at most: %s",
                self._connection.address, self._patience, self._connection.redact(self._reason),
            )  # fmt: skip

    def _begins(self, error: Any) -> None:
        if self._reason is None:
            self._begin = time.monotonic()
            self._next = 0.0
            self._reason = error
        elif is_telling(error):
            self._reason = error

    def _answers(self) -> bool:
        name = self._connection.address.topic
        try:
            topic = self._consumer.list_topics(name, timeout=_ANSWER).topics.get(name)
        except kafka().KafkaException:
            return False
        return topic is not None and topic.error is None
