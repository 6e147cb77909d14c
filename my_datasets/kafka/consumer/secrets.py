"""Credentials, which no log, error or `repr` may show."""

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"password|passphrase|secret|credential|token|\.pem$|jaas|oauthbearer\.config|api\.?key", re.I
)
HIDDEN = "***"


def is_secret(option: str) -> bool:
    """Returns whether the value of an option of librdkafka's must not be shown."""
    return bool(_SECRET.search(option))


class Redactor:
    """Takes the values of secret options out of texts."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Takes the options, as librdkafka takes them."""
        values = {str(value) for name, value in options.items() if is_secret(name) and value}
        # The longest first: one may be a part of another.
        self._values = sorted(values, key=len, reverse=True)

    def __call__(self, text: object) -> str:
        """Returns a text without them."""
        found = str(text)
        for value in self._values:
            found = found.replace(value, HIDDEN)
        return found
