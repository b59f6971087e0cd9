"""How many messages a queue holds, as its namespace's administration API says it.

It needs the right to manage, and is only for showing: whoever has no such right sees no count.
"""

import http.client
import re
import ssl
import time
from urllib.parse import quote

from pairbus.amqp.client import ClientOptions
from pairbus.cost.operations import Kind
from pairbus.errors import PairbusError
from pairbus.syphon.books import Books

TIMEOUT_S = 5.0
_ACTIVE = re.compile(rb"<(?:\w+:)?ActiveMessageCount[^>]*>(\d+)</")
_HTTPS = 443


def message_count(options: ClientOptions, queue: str) -> int | None:
    """The active messages of a queue, those that are locked included. None: not known."""
    host, port = options.address
    if options.tokens is None:
        return None
    try:
        token = options.tokens.token(f"https://{options.host}/{queue}", time.time())
        connection: http.client.HTTPConnection
        if options.tls:
            https = _HTTPS if port in (5671, 5672) else port
            context = ssl.create_default_context(cafile=options.ca_file)
            connection = http.client.HTTPSConnection(
                host, https, timeout=TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            text = token.text if token.text.startswith("SharedAccess") else f"Bearer {token.text}"
            path = f"/{quote(queue)}?api-version=2021-05&enrich=false"
            connection.request("GET", path, headers={"Authorization": text})
            answer = connection.getresponse()
            found = _ACTIVE.search(answer.read()) if answer.status == 200 else None
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, PairbusError):
        return None
    return None if found is None else int(found[1])


def backlog_size(
    options: ClientOptions, queues: tuple[str, ...], books: Books | None = None
) -> int | None:
    """All messages of some queues; None where no count can be had. A queue that is not there has
    none."""
    counts = [message_count(options, queue) for queue in queues]
    if books:
        for queue, count in zip(queues, counts, strict=True):
            books.add(Kind.MANAGEMENT, queue, answered=count is not None)
        books.flush()
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
