"""Requests of the administration API, and their responses: an entry, a page of a list, an error."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.atom_writer import ApiEndpoint, AtomEntry
from pairbus.emulator.admin.paths import AdminPath
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.emulator.entities.runtime_properties import to_datetime
from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import MAX_PAGE_SIZE

T = TypeVar("T")


class AdminError(Exception):
    """An error with the HTTP status of its response.

    The sub-code in the message is more specific than the status, or the status times 100.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        sub_code: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"SubCode={status * 100 if sub_code is None else sub_code}. {detail}")
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """An authorized request, with its parsed path and its time."""

    http: HttpRequest
    path: AdminPath
    endpoint: ApiEndpoint
    now_ms: int


def entry_response(request: AdminRequest, entry: AtomEntry, status: int = 200) -> HttpResponse:
    body = atom_writer.write_entry(entry, request.endpoint)
    return HttpResponse(status=status, body=body, content_type=atom_writer.ENTRY_TYPE)


def page_response(
    request: AdminRequest,
    title: str,
    path: str,
    items: Sequence[T],
    to_entry: Callable[[T], AtomEntry],
) -> HttpResponse:
    """Return the items that `$skip` and `$top` select, at most MAX_PAGE_SIZE, as a feed."""
    skip = _query_number(request.http, "skip", 0)
    top = min(_query_number(request.http, "top", MAX_PAGE_SIZE), MAX_PAGE_SIZE)
    entries = [to_entry(item) for item in items[skip : skip + top]]
    # An empty page must not link to a next one: a client would follow such links for ever.
    more = top > 0 and len(items) > skip + top
    return feed_response(request, title, path, entries, skip=skip, top=top, more=more)


def _query_number(request: HttpRequest, name: str, default: int) -> int:
    text = request.query.get(f"${name}")
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise ConfigurationError(f"Parameter '{name}' should be non-negative integer.")
    return int(text)


def feed_response(
    request: AdminRequest,
    title: str,
    path: str,
    entries: Iterable[AtomEntry],
    *,
    skip: int = 0,
    top: int = MAX_PAGE_SIZE,
    more: bool = False,
) -> HttpResponse:
    body = atom_writer.write_feed(
        title,
        path,
        entries,
        request.endpoint,
        to_datetime(request.now_ms),
        skip=skip,
        top=top,
        more=more,
    )
    return HttpResponse(status=200, body=body, content_type=atom_writer.FEED_TYPE)
