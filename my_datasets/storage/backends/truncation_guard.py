"""HTTP answers whose head came whole.

Python's `http.client` takes a connection that ends within an answer's head for the end of the head:
what is left looks like an answer without contents. Servers say how long their contents are; where
that is missing, it was cut.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter

_CONNECTIONS = 32
_WITHOUT_CONTENTS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


def is_whole(status: int, headers: Mapping[str, Any]) -> bool:
    """Returns whether the head of an answer says how long its contents are.

    Args:
      status: The answer's status.
      headers: Its fields, whatever the case of their names.
    """
    names = {name.lower() for name in headers}
    return status in _WITHOUT_CONTENTS or bool(names & {"content-length", "transfer-encoding"})


class WholeAnswers(HTTPAdapter):
    """Of `requests`: fails where the head of an answer was cut."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=_CONNECTIONS)

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        """Returns the answer.

        Raises:
          requests.ConnectionError: It was cut.
        """
        if not is_whole(resp.status, resp.headers):
            resp.close()
            raise requests.ConnectionError("the answer ended within its head", request=req)
        return super().build_response(req, resp)
