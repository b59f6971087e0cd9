"""A fault that stops a syphon in the middle of a batch."""

import http.client
import json
import time
from typing import Any

from pairbus.amqp.client import ClientOptions
from tests.waiting import wait_until

NEVER_S = 600.0
"""The delay of an answer that arrives after the test has ended."""


class DelayedAnswer:
    """Delays the response to the next delivery to a path, which is stored. Until the response
    arrives, the task waits and its messages are not completed."""

    def __init__(self, connection_string: str, path: str, seconds: float = NEVER_S) -> None:
        self._options = ClientOptions.from_connection_string(connection_string)
        fault = {"kind": "answer-late", "entity": path, "count": 1, "seconds": seconds}
        self._number = self._request("POST", fault)["number"]

    def wait(self) -> None:
        """Wait until the fault happened."""
        wait_until(self._happened, "a delivery without an answer")

    def _happened(self) -> bool:
        faults = self._request("GET", None)
        return any(fault["number"] == self._number and fault["fired"] == 1 for fault in faults)

    def _request(self, method: str, content: Any) -> Any:
        assert self._options.tokens is not None
        host, port = self._options.address
        token = self._options.tokens.token(f"https://{self._options.host}/", time.time())
        connection = http.client.HTTPConnection(host, port, timeout=NEVER_S)
        try:
            connection.request(
                method,
                "/$pairbus/faults",
                body=None if content is None else json.dumps(content),
                headers={"Authorization": token.text},
            )
            response = connection.getresponse()
            assert response.status in (200, 201), response.status
            return json.loads(response.read())
        finally:
            connection.close()
