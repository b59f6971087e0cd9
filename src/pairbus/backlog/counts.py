"""What a namespace's administration API says of a queue. It needs the right to manage."""

import http.client
import re
import ssl
import time
from typing import NamedTuple
from urllib.parse import quote

from pairbus.amqp.client import ClientOptions
from pairbus.errors import (
    ConnectionLost,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    Unavailable,
)

API_VERSION = "2021-05"
_AMQP_PORTS, _HTTPS = (5671, 5672), 443


class Counts(NamedTuple):
    """Of one queue. Messages that are locked count as waiting."""

    messages: int
    dead_lettered: int
    size: int
    """Bytes, dead-lettered messages among them."""


class Administration:
    """Asks for counts, all over one connection. Every wait is as long as `operation_timeout_s`."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> "Administration":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            options = self._options
            host, port = options.address
            wait_s = options.operation_timeout_s
            if options.tls:
                port = _HTTPS if port in _AMQP_PORTS else port
                context = ssl.create_default_context(cafile=options.ca_file)
                self._connection = http.client.HTTPSConnection(
                    host, port, timeout=wait_s, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=wait_s)
        return self._connection

    def counts(self, queue: str) -> Counts:
        """Raises EntityNotFound, NotAuthorized, or Unavailable with a reason."""
        headers = {}
        if self._options.tokens is not None:
            audience = f"https://{self._options.host}/{queue}"
            text = self._options.tokens.token(audience, time.time()).text
            signed = text.startswith("SharedAccess")
            headers["Authorization"] = text if signed else f"Bearer {text}"
        path = f"/{quote(queue)}?api-version={API_VERSION}&enrich=false"
        try:
            connection = self._connected()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError as exc:
            raise OperationTimeout("the administration API did not answer in time") from exc
        except (OSError, ValueError, http.client.HTTPException) as exc:  # Value: not a host
            raise ConnectionLost(f"the administration API cannot be reached: {exc}") from exc
        return read_counts(queue, answer.status, body)


def read_counts(queue: str, status: int, body: bytes) -> Counts:
    """An answer of the API as counts. Raises what `Administration.counts` does."""
    if status in (401, 403):
        raise NotAuthorized("counting messages needs the right to manage")
    # Where there is no such queue, the service may also answer with an empty list.
    if status == 404 or (status == 200 and b"<QueueDescription" not in body):
        raise EntityNotFound(f"there is no queue {queue!r}")
    found = [
        re.search(rb"<(?:\w+:)?%b(?:\s[^>]*)?>(\d+)</" % name, body)
        for name in (b"ActiveMessageCount", b"DeadLetterMessageCount", b"SizeInBytes")
    ]
    numbers = [int(one[1]) for one in found if one is not None]
    if status != 200 or len(numbers) < len(found):
        raise Unavailable(f"the administration API gave no counts (status {status})")
    return Counts(*numbers)
