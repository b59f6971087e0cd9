"""Snapshots for the page, built by the console's own code from reports, inspections and files."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.syphon_control import Control
from pairbus.backlog.syphon_file import SyphonSummary
from pairbus.console.estimates import MessageEstimate
from pairbus.console.inspection import NamespaceInspection, SyphonView
from pairbus.console.outage import IDLE_INTERVAL_S
from pairbus.console.sender_report import parse_report
from pairbus.console.senders import SenderEvent, SenderRegistry
from pairbus.console.snapshot import Knowledge, build_snapshot

Snapshot: TypeAlias = dict[str, Any]

NOW = datetime(2026, 11, 17, 17, 0, 0, tzinfo=UTC)
NAME = "orders"
PRIMARY, SECONDARY = "orders.servicebus.windows.net", "orders-dr.servicebus.windows.net"
CAUSE = "ServiceBusConnectionError: Failed to initiate the connection due to exception: timed out"
QUEUES = 10
RUNNING = {"running": True, "throttled_sends": 0, "throttled_receives": 0}


def ago(seconds: float) -> str:
    """Return an ISO 8601 time before `NOW`."""
    time = NOW - timedelta(seconds=seconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago_ms(seconds: float) -> int:
    """Return a time before `NOW` in milliseconds since 1970."""
    return int((NOW.timestamp() - seconds) * 1000)


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a sender, and the seconds since it arrived."""

    values: dict[str, Any]
    age_s: float


def path(name: str, state: str = "healthy", *, since: float = 7200) -> dict[str, Any]:
    """Return a path of a report."""
    cause = CAUSE if state in ("suspect", "failover") else None
    return {"path": name, "state": state, "since": ago(since), "cause": cause}


def event(seconds: float, text: str) -> dict[str, Any]:
    """Return an event of a report."""
    return {"time": ago(seconds), "kind": "StateChanged", "path": None, "text": text}


def report(
    number: int,
    *paths: dict[str, Any],
    silent: bool = False,
    events: Iterable[dict[str, Any]] = (),
    **sender: str,
) -> Report:
    """Return the last report of a sender."""
    identity = {
        "id": f"00000000-0000-4000-8000-{number:012}",
        "host": f"web-{number}",
        "process": 4700 + number,
        "application": "/srv/shop/worker.py",
        "started_at": ago(7200),
        "pairbus": "0.2.0",
    }
    values = {
        "version": 1,
        "sender": identity | sender,
        "primary_name": NAME,
        "secondary_available": True,
        "paths": list(paths),
        "counts": {"sent": 1_000, "stored": 0, "failed": 0, "throttled": 0},
        "events": list(events),
    }
    return Report(values, 95 if silent else 4)


def queue(
    index: int, messages: int = 0, dead_letters: int = 0, oldest: float = 0, name: str = NAME
) -> QueueContents:
    return QueueContents(
        path=f"{name}/x-servicebus-transfer/{index}",
        index=index,
        messages=messages,
        dead_lettered=dead_letters,
        oldest_ms=ago_ms(oldest) if messages else None,
    )


def destination(name: str, messages: int, oldest: float) -> MessageEstimate:
    return MessageEstimate(name, messages=messages, oldest_ms=ago_ms(oldest))


def dead_letters(name: str, reason: str, messages: int) -> MessageEstimate:
    return MessageEstimate(name, reason, messages)


def inspection(
    *queues: QueueContents,
    destinations: Iterable[MessageEstimate] = (),
    dead: Iterable[MessageEstimate] = (),
    primary: str | None = None,
    estimated: bool = False,
) -> NamespaceInspection:
    """Return an inspection of the namespaces. `primary` is the problem of the primary. Queues that
    are not given are empty."""
    given = {item.index: item for item in queues}
    contents = tuple(given.get(index) or queue(index) for index in range(QUEUES))
    return NamespaceInspection(
        time_ms=ago_ms(12),
        probes={"primary": ProbeResult(PRIMARY, primary), "secondary": ProbeResult(SECONDARY)},
        backlog=BacklogContents(queues=contents, expected=QUEUES),
        destinations=tuple(destinations),
        dead_letters=tuple(dead),
        estimated=estimated,
    )


def without_secondary() -> NamespaceInspection:
    """Return an inspection in which neither namespace was available."""
    problem = "connection refused"
    probes = {
        "primary": ProbeResult(PRIMARY, problem),
        "secondary": ProbeResult(SECONDARY, problem),
    }
    return NamespaceInspection(time_ms=ago_ms(12), probes=probes)


def syphon(control: Control | None = None, **summary: Any) -> SyphonView:
    """Return a syphon that runs."""
    return SyphonView(
        summary=SyphonSummary(**(RUNNING | summary)),
        time_ms=ago_ms(1),
        control=Control() if control is None else control,
    )


def snapshot(
    *reports: Report,
    seen: NamespaceInspection | None,
    syphon: SyphonView,
    cost: Mapping[str, Any] | None = None,
    redrives: Iterable[Mapping[str, Any]] = (),
    interval_s: float = IDLE_INTERVAL_S,
    throttled: int = 0,
    events: Iterable[tuple[float, str]] = (),
    primary: str = PRIMARY,
) -> Snapshot:
    """Return the snapshot of an operator. `events` are those of the console itself."""
    registry = SenderRegistry(NAME)
    for each in reports:
        registry.accept(parse_report(each.values), NOW.timestamp() - each.age_s)
    own = (SenderEvent(ago_ms(seconds), "console", text) for seconds, text in events)
    knowledge = Knowledge(
        now=NOW.timestamp(),
        primary=primary,
        secondary=SECONDARY,
        paths=tuple(registry.paths()),
        senders=tuple(registry.senders()),
        inspection=seen,
        syphon=syphon,
        cost=cost,
        inspections={"operations": 12, "per_hour": 40, "interval_s": interval_s},
        throttled=throttled,
        redrives=tuple(redrives),
        events=(*own, *registry.events),
    )
    return {**build_snapshot(knowledge), "role": "operator"}
