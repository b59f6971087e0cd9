"""Calls of the administration API, and their answers: an entry, a page of a list, or a refusal."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pairbus.emulator.admin import atom
from pairbus.emulator.admin.paths import AdminPath
from pairbus.emulator.connections.http import HttpRequest, HttpResponse
from pairbus.errors import ConfigurationError
from pairbus.servicebus.limits import MAX_PAGE_SIZE

T = TypeVar("T")


class Refusal(Exception):
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
    site: atom.AtomSite
    now_ms: int


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def one(call: AdminRequest, entry: atom.Entry, status: int = 200) -> HttpResponse:
    body = atom.write_entry(entry, call.site)
    return HttpResponse(status=status, body=body, content_type=atom.ENTRY_TYPE)


def page(
    call: AdminRequest, title: str, path: str, found: Sequence[T], show: Callable[[T], atom.Entry]
) -> HttpResponse:
    """What `$skip` and `$top` ask for, at most MAX_PAGE_SIZE."""
    skip, top = _number(call.request, "skip", 0), _number(call.request, "top", MAX_PAGE_SIZE)
    top = min(top, MAX_PAGE_SIZE)
    entries = [show(one) for one in found[skip : skip + top]]
    # A page of none has none behind it: a client would follow that link for ever.
    more = top > 0 and len(found) > skip + top
    return feed(call, title, path, entries, skip=skip, top=top, more=more)


def _number(request: HttpRequest, name: str, default: int) -> int:
    given = request.query.get(f"${name}")
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise ConfigurationError(f"Parameter '{name}' should be non-negative integer.")
    return int(given)


def feed(
    call: AdminRequest,
    title: str,
    path: str,
    entries: Iterable[atom.Entry],
    *,
    skip: int = 0,
    top: int = MAX_PAGE_SIZE,
    more: bool = False,
) -> HttpResponse:
    body = atom.write_feed(
        title, path, entries, call.site, moment(call.now_ms), skip=skip, top=top, more=more
    )
    return HttpResponse(status=200, body=body, content_type=atom.FEED_TYPE)
