"""Queues and their message counts, from a namespace's administration API. Needs the Manage right.

Lists come in pages: `$skip` and `$top` say which entries, and the service gives at most 100.
"""

import http.client
import ssl
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pairbus.amqp.client import ClientOptions
from pairbus.errors import (
    ConnectionLost,
    EntityNotFound,
    NotAuthorized,
    OperationTimeout,
    Unavailable,
)

API_VERSION = "2021-05"
PAGE_SIZE = 100
_QUEUES = "$Resources/queues"
_AMQP_PORTS, _HTTPS = (5671, 5672), 443


class QueueCounts(NamedTuple):
    """Of one queue. Messages that are locked count as waiting."""

    messages: int
    dead_lettered: int
    size: int
    """Bytes, dead-lettered messages among them."""


class QueuePage(NamedTuple):
    """One page of the list of queues."""

    paths: list[str]
    more: bool
    """The response has a link to a next page."""


class Administration:
    """Sends requests over one connection. Every wait is as long as `operation_timeout_s`."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._connection: http.client.HTTPConnection | None = None
        self.requests = 0
        """Requests so far, those without a response included: each may be billed."""

    def __enter__(self) -> "Administration":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def counts(self, queue: str) -> QueueCounts:
        """Raises EntityNotFound, NotAuthorized, or Unavailable with a reason."""
        status, body = self._get(queue, "enrich=false", audience=queue)
        return read_counts(queue, status, body)

    def list_queues(self, prefix: str = "") -> list[str]:
        """Return the paths of all queues that begin with a prefix, in upper or lower case. The
        whole namespace is listed, 100 queues with each request. Raises NotAuthorized, or
        Unavailable with a reason."""
        start = prefix.lower()
        return [
            path for page in self._pages() for path in page.paths if path.lower().startswith(start)
        ]

    def _pages(self) -> Iterator[QueuePage]:
        skip = 0
        while True:
            query = f"$skip={skip}&$top={PAGE_SIZE}"
            page = read_queue_page(*self._get(_QUEUES, query, audience=""))
            yield page
            # A service may give fewer entries than it was asked for, and say that there are more.
            if not page.paths or not (page.more or len(page.paths) >= PAGE_SIZE):
                return
            skip += len(page.paths)

    def _get(self, path: str, query: str, *, audience: str) -> tuple[int, bytes]:
        """Return status and body. `audience` is the path that the token is for."""
        headers = {}
        if self._options.tokens is not None:
            address = f"https://{self._options.host}/{audience}"
            text = self._options.tokens.token(address, time.time()).text
            signed = text.startswith("SharedAccess")
            headers["Authorization"] = text if signed else f"Bearer {text}"
        self.requests += 1
        try:
            connection = self._connected()
            target = f"/{quote(path, safe='/$')}?api-version={API_VERSION}&{query}"
            connection.request("GET", target, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError as exc:
            raise OperationTimeout("the administration API did not answer in time") from exc
        except (OSError, ValueError, http.client.HTTPException) as exc:  # Value: not a host
            raise ConnectionLost(f"the administration API cannot be reached: {exc}") from exc

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


def read_counts(queue: str, status: int, body: bytes) -> QueueCounts:
    """Read the counts of a queue from a response. Raises what `Administration.counts` does."""
    if status == 404:
        raise EntityNotFound(f"there is no queue {queue!r}")
    root = _root(status, body, "counting messages needs the right to manage")
    description = _first(root, "QueueDescription")
    if description is None:  # for a queue that does not exist, the service may send an empty list
        raise EntityNotFound(f"there is no queue {queue!r}")
    numbers = [
        _number(description, name)
        for name in ("ActiveMessageCount", "DeadLetterMessageCount", "SizeInBytes")
    ]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        raise Unavailable(f"the administration API gave no counts (status {status})")
    return QueueCounts(*known)


def read_queue_page(status: int, body: bytes) -> QueuePage:
    """Read a page of the list of queues. Raises what `Administration.list_queues` does."""
    root = _root(status, body, "listing queues needs the Manage right")
    if _local_name(root) != "feed":
        raise Unavailable("the administration API gave no list of queues")
    paths: list[str] = []
    for entry in root:
        if _local_name(entry) == "entry":
            title = _first(entry, "title")
            if title is None or not title.text:
                raise Unavailable("the administration API gave a queue without a path")
            paths.append(title.text)
    more = any(_local_name(link) == "link" and link.get("rel") == "next" for link in root)
    return QueuePage(paths, more)


def _root(status: int, body: bytes, right: str) -> Element:
    if status in (401, 403):
        raise NotAuthorized(right)
    if status != 200:
        raise Unavailable(f"the administration API answered with status {status}")
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError as exc:
        raise Unavailable(f"the administration API gave a response that is not XML: {exc}") from exc


def _first(parent: Element, name: str) -> Element | None:
    """Return the first element of a name, in any XML namespace."""
    return next((element for element in parent.iter() if _local_name(element) == name), None)


def _number(parent: Element, name: str) -> int | None:
    element = _first(parent, name)
    text = "" if element is None else (element.text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
