"""Calls of the administration API, and their answers: an entry, a page of a list, or a refusal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pairbus.emulator.admin import atom_writer
from pairbus.emulator.admin.paths import AdminPath
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import MAX_PAGE_SIZE

T = TypeVar("T")


class AdminError(Exception):
    """An error with the status of its answer. The sub-code says more than the status, or the
    same."""

    def __init__(
        self,
        status: int,
        why: str,
        *,
        sub_code: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"SubCode={status * 100 if sub_code is None else sub_code}. {why}")
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request whose sender may make it: what it is about, and when."""

    request: HttpRequest
    place: AdminPath
    site: atom_writer.ApiEndpoint
    now_ms: int


def to_datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def entry_response(
    call: AdminRequest, entry: atom_writer.AtomEntry, status: int = 200
) -> HttpResponse:
    body = atom_writer.write_entry(entry, call.site)
    return HttpResponse(status=status, body=body, content_type=atom_writer.ENTRY_TYPE)


def page_response(
    call: AdminRequest,
    title: str,
    path: str,
    found: Sequence[T],
    show: Callable[[T], atom_writer.AtomEntry],
) -> HttpResponse:
    """What `$skip` and `$top` ask for, at most MAX_PAGE."""
    skip, top = _number(call.request, "skip", 0), _number(call.request, "top", MAX_PAGE_SIZE)
    top = min(top, MAX_PAGE_SIZE)
    entries = [show(entry_response) for entry_response in found[skip : skip + top]]
    # A page of none has none behind it: a client would follow that link for ever.
    more = top > 0 and len(found) > skip + top
    return feed_response(call, title, path, entries, skip=skip, top=top, more=more)


def _number(request: HttpRequest, name: str, default: int) -> int:
    given = request.query.get(f"${name}")
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise ConfigurationError(f"Parameter '{name}' should be non-negative integer.")
    return int(given)


def feed_response(
    call: AdminRequest,
    title: str,
    path: str,
    entries: Iterable[atom_writer.AtomEntry],
    *,
    skip: int = 0,
    top: int = MAX_PAGE_SIZE,
    more: bool = False,
) -> HttpResponse:
    body = atom_writer.write_feed(
        title, path, entries, call.site, to_datetime(call.now_ms), skip=skip, top=top, more=more
    )
    return HttpResponse(status=200, body=body, content_type=atom_writer.FEED_TYPE)
