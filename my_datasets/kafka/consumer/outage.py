"""Handles broker outages: waits, warns once, and fails in the end."""

import time
from collections import deque
from typing import Any

from my_datasets.core.logs import get_logger
from my_datasets.kafka.consumer.connection import Connection, is_outage, is_telling, kafka

_log = get_logger(__name__)

# Seconds between probes during an outage, and the timeout of a probe.
_EVERY, _ANSWER = 1.0, 1.0
# Seconds before an outage is logged: idle connections are closed now and then.
_WORTH_TELLING = 5.0


class Outage:
    """Monitors whether brokers answer."""

    def __init__(
        self, connection: Connection, consumer: Any, reported: deque[Any], patience: float
    ) -> None:
        """Initializes the monitor.

        Args:
          connection: The connection to the topic.
          consumer: The topic's consumer.
          reported: Receives the errors that the consumer reports.
          patience: Seconds after which an outage is an error.
        """
        self._connection, self._consumer = connection, consumer
        self._reported, self._patience = reported, patience
        self._begin = self._next = 0.0
        self._reason: Any = None
        self._is_told = False

    @property
    def is_on(self) -> bool:
        """Whether there is an outage."""
        return self._reason is not None

    @staticmethod
    def is_one(error: Any) -> bool:
        """Returns whether an error may be temporary, due to an outage."""
        return is_outage(error) or is_telling(error)

    def is_over(self) -> None:
        """Ends the outage, because a message arrived."""
        if self._is_told:
            away = time.monotonic() - self._begin
            _log.warning("%s answers again after %.0f s", self._connection.address, away)
        self._reason, self._is_told = None, False
        self._reported.clear()

    def look(self) -> None:
        """Handles reported errors; during an outage, probes whether the brokers answer again.

        Raises:
          StreamError: The outage has lasted too long, or an error is permanent.
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
