"""Keeps credentials out of logs, errors and `repr`."""

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"password|passphrase|secret|credential|token|\.pem$|jaas|oauthbearer\.config|api\.?key", re.I
)
HIDDEN = "***"


def is_secret(option: str) -> bool:
    """Returns whether the value of a librdkafka option must not be shown."""
    return bool(_SECRET.search(option))


class Redactor:
    """Removes the values of secret options from texts."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Collects the secrets.

        Args:
          options: librdkafka's options.
        """
        values = {str(value) for name, value in options.items() if is_secret(name) and value}
        # Longest first, because one secret may be part of another.
        self._values = sorted(values, key=len, reverse=True)

    def __call__(self, text: object) -> str:
        """Returns the text with each secret replaced by `***`."""
        found = str(text)
        for value in self._values:
            found = found.replace(value, HIDDEN)
        return found
