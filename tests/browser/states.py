"""Snapshots of the console for each state that the page must show well."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

Snapshot: TypeAlias = dict[str, Any]

NOW = datetime(2026, 11, 17, 17, 0, 0, tzinfo=UTC)
PRIMARY, SECONDARY = "orders.servicebus.windows.net", "orders-dr.servicebus.windows.net"
CAUSE = "ServiceBusConnectionError: Failed to initiate the connection due to exception: timed out"
OUTAGE_S = 242
OUTAGE, DRAIN = 0.6, 0.2
"""The parts of a history since the start of an outage that has ended, and since its end."""
LONG_NAME = "eu-west-1-production/" + "payments-and-settlements-reconciliation-" * 5 + "v2"
HEBREW, ARABIC = "הזמנות-לקוח", "طلبات/العملاء"
OVERRIDE = "orders\u202egnp.exe\u0000\u200b\n"
MARKUP = '<img src=x onerror="document.body.dataset.hacked=1"><script>alert(1)</script>&amp;<b>bold'


def ago(seconds: float) -> str:
    """Return an ISO 8601 time before `NOW`."""
    time = NOW - timedelta(seconds=seconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def path(name: str, state: str = "healthy", *, senders: int = 3, since: float = 7200) -> Snapshot:
    cause = CAUSE if state in ("suspect", "failover") else None
    return {"path": name, "state": state, "senders": senders, "since": ago(since), "cause": cause}


def sender(number: int, *, silent: bool = False, **states: int) -> Snapshot:
    return {
        "id": f"00000000-0000-4000-8000-{number:012}",
        "host": f"web-{number}",
        "process": 4700 + number,
        "application": "/srv/shop/worker.py",
        "last_report": ago(95 if silent else 4),
        "silent": silent,
        "states": states,
    }


def queue(index: int, messages: int = 0, dead_letters: int = 0, oldest: float = 0) -> Snapshot:
    return {
        "queue": f"orders/x-servicebus-transfer/{index}",
        "index": index,
        "messages": messages,
        "dead_letters": dead_letters,
        "oldest": ago(oldest) if messages else None,
    }


def destination(name: str, messages: int, oldest: float) -> Snapshot:
    return {"destination": name, "messages": messages, "oldest": ago(oldest)}


def event(seconds: float, text: str, source: str = "web-1 · 4701") -> Snapshot:
    return {"time": ago(seconds), "source": source, "text": text}


def healthy() -> Snapshot:
    return {
        "time": ago(0),
        "level": "good",
        "sentence": "Sending works. No messages wait.",
        "problems": [],
        "primary": PRIMARY,
        "secondary": SECONDARY,
        "paths": [path("orders"), path("invoices"), path("shipments/eu")],
        "senders": [sender(number, healthy=3) for number in (1, 2, 3)],
        "queues": [queue(index) for index in range(10)],
        "destinations": [],
        "backlog": {"messages": 0, "counted_at": ago(12), "sampled": False},
        "syphon": {
            "known": True,
            "healthy": True,
            "problem": None,
            "paused": False,
            "rate": 0.0,
            "max_rate": None,
            "seconds_to_go": None,
            "moved": 0,
            "running": True,
            "time": ago(1),
        },
        "dead_letters": [],
        "throttled": {"calls": 0},
        "cost": {"currency": "USD", "so_far": 0.0, "forecast": 0.0},
        "looks": {"operations": 12, "per_hour": 40, "interval_s": 300},
        "redrives": [],
        "events": [event(7200, "orders: the sender is paired.")],
        "role": "operator",
    }


def failover() -> Snapshot:
    return healthy() | {
        "level": "bad",
        "sentence": "The primary is down. Sends go to the backlog: "
        "12\u202f430 messages wait for orders and invoices.",
        "problems": [f"orders: failover for 4 min in 3 of 3 senders ({CAUSE})"],
        "paths": [
            path("invoices", "failover", since=238),
            path("orders", "failover", since=242),
            path("shipments/eu", "suspect", since=9),
            path("returns"),
        ],
        "senders": [
            sender(1, failover=2, suspect=1, healthy=1),
            sender(2, failover=2, healthy=2),
            sender(3, silent=True, failover=2, healthy=2),
        ],
        "queues": [
            queue(index, 1243 if index < 5 else 6215 if index == 7 else 0, oldest=240)
            for index in range(10)
        ],
        "destinations": [destination("orders", 9810, 242), destination("invoices", 2620, 238)],
        "backlog": {"messages": 12430, "counted_at": ago(12), "sampled": False},
        "syphon": healthy()["syphon"]
        | {
            "healthy": False,
            "problem": "The primary accepted no message for 240 s (orders: connection refused). "
            "Nothing is lost.",
        },
        "throttled": {"calls": 17},
        "cost": {"currency": "USD", "so_far": 0.0257, "forecast": 0.31},
        "events": [
            event(9, "shipments/eu: healthy → suspect (ServiceBusConnectionError: timed out)"),
            event(95, "The sender has stopped reporting.", "web-3 · 4703"),
            event(238, f"invoices: suspect → failover ({CAUSE})"),
            event(242, f"orders: suspect → failover ({CAUSE})"),
        ],
    }


def draining() -> Snapshot:
    return failover() | {
        "level": "warning",
        "sentence": "Sending works. 12\u202f430 messages wait for orders and invoices; "
        "the drain needs about 4 min.",
        "problems": [],
        "paths": [path("orders", "draining", since=70), path("invoices", "draining", since=60)],
        "senders": [sender(number, draining=2) for number in (1, 2, 3)],
        "syphon": healthy()["syphon"]
        | {"rate": 812.4, "seconds_to_go": 240.0, "moved": 48120, "max_rate": 1000.0}
        | {"rates": {"invoices": 100.0}},
    }


def stuck() -> Snapshot:
    problem = (
        "The primary accepted no message for 960 s (invoices: the entity does not exist). "
        "Nothing is lost; create the entity, or drain the others with --destination."
    )
    return draining() | {
        "level": "bad",
        "sentence": "The drain is stuck. 2\u202f620 messages wait for invoices.",
        "problems": [problem],
        "queues": [queue(0, 2620, 12, oldest=4200), *(queue(index) for index in range(1, 10))],
        "destinations": [destination("invoices", 2620, 4200)],
        "backlog": {"messages": 2620, "counted_at": ago(12), "sampled": True, "estimated": True},
        "syphon": healthy()["syphon"] | {"healthy": False, "problem": problem, "moved": 48120},
        "dead_letters": [{"destination": "invoices", "reason": "EntityNotFound", "messages": 12}],
    }


def secondary_down() -> Snapshot:
    return failover() | {
        "sentence": "Sends fail: the primary and the secondary are down.",
        "problems": [
            f"{SECONDARY} cannot be reached (connection refused). Messages are not stored.",
            "3 senders cannot reach the secondary.",
            "The backlog was last counted 10 min ago.",
        ],
        "senders": [
            sender(number, failover=2) | {"secondary_available": False} for number in (1, 2, 3)
        ],
        "backlog": {"messages": 12430, "counted_at": ago(600), "sampled": False},
        "syphon": {"known": False},
        "cost": None,
    }


def nothing_reports() -> Snapshot:
    return healthy() | {
        "level": "warning",
        "sentence": "No sender reports, so the state of the paths is not known.",
        "problems": ["No sender reports to this console."],
        "paths": [],
        "senders": [],
        "queues": [],
        "syphon": {"known": False},
        "cost": None,
        "events": [],
    }


def many_paths() -> Snapshot:
    states = ["failover"] * 31 + ["draining"] * 9 + ["suspect"] * 2 + ["healthy"] * 158
    paths = [path(f"tenant-{n:03}/orders", state) for n, state in enumerate(states)]
    return failover() | {
        "sentence": "31 of 200 paths are in failover.",
        "paths": paths,
        "senders": [sender(n, failover=31, draining=9, healthy=160) for n in range(120)],
        "omitted_senders": 12,
        "destinations": [destination(f"tenant-{n:03}/orders", 1000 - n, 242) for n in range(40)],
        "events": [event(n, f"tenant-{n:03}/orders: suspect → failover") for n in range(100)],
    }


def _named(*names: str) -> Snapshot:
    """Return a failover in which each name of the page is one of these names."""
    first, last = names[0], names[-1]
    return failover() | {
        "sentence": f"The primary is down. 12\u202f430 messages wait for {first}.",
        "problems": [f"{name}: failover ({name})" for name in names],
        "primary": f"{first}.servicebus.windows.net",
        "paths": [path(name, "failover", since=242) | {"cause": name} for name in names],
        "senders": [sender(1, failover=1) | {"host": first, "application": last}],
        "queues": [queue(0, 12430, 3, 242) | {"queue": f"{first}/x-servicebus-transfer/0"}],
        "destinations": [destination(name, 9810, 242) for name in names],
        "syphon": failover()["syphon"] | {"problem": first, "rates": {first: 10.0}},
        "dead_letters": [
            {"destination": name, "reason": name, "messages": 12345} for name in names
        ],
        "redrives": [redrive("running", first, last, moved=50)],
        "events": [event(5, f"{name}: healthy → failover ({name})", name) for name in names],
    }


def redrive(
    state: str, destination: str, reason: str, *, moved: int, total: int = 100_000
) -> Snapshot:
    return {
        "id": f"redrive-{state}",
        "state": state,
        "moved": moved,
        "left": total - moved,
        "total": total,
        "rate": 420.0 if state == "running" else 0.0,
        "seconds_to_go": (total - moved) / 420 if state == "running" else None,
        "destination": destination,
        "reason": reason,
        "dry_run": False,
        "text": "Moving dead letters." if state == "running" else f"{moved} messages were moved.",
    }


def long_names() -> Snapshot:
    return _named(LONG_NAME, "x" * 260)


def right_to_left_names() -> Snapshot:
    return _named(HEBREW, ARABIC, OVERRIDE)


def names_with_markup() -> Snapshot:
    return _named(MARKUP, '"><svg/onload=alert(1)>', "{{7*7}}${7*7}")


def many_dead_letters() -> Snapshot:
    groups = [
        ("orders", "MaxDeliveryCountExceeded", 81_202),
        ("invoices", "EntityNotFound", 18_000),
        ("orders", "TTLExpiredException", 798),
    ]
    return healthy() | {
        "level": "warning",
        "sentence": "Sending works. 100\u202f000 dead letters need attention.",
        "queues": [queue(index, 0, 10_000) for index in range(10)],
        "dead_letters": [
            {"destination": name, "reason": reason, "messages": messages}
            for name, reason, messages in groups
        ],
        "redrives": [
            redrive("running", "orders", "MaxDeliveryCountExceeded", moved=23_456),
            redrive("cancelled", "invoices", "EntityNotFound", moved=120, total=18_000),
            redrive("done", "returns", "TTLExpiredException", moved=40, total=40),
            redrive("failed", "shipments/eu", "EntityNotFound", moved=0)
            | {"total": None, "left": None, "dry_run": True},
        ],
    }


STATES: dict[str, Callable[[], Snapshot]] = {
    function.__name__: function
    for function in (
        healthy,
        failover,
        draining,
        stuck,
        secondary_down,
        nothing_reports,
        many_paths,
        long_names,
        right_to_left_names,
        names_with_markup,
        many_dead_letters,
    )
}


def history(snapshot: Snapshot, seconds: int) -> dict[str, list[Any]]:
    """Return a history that ends with the snapshot, with a gap in which the console did not run."""
    step = max(10, seconds // 240)
    count = seconds // step + 1
    times = [NOW.timestamp() - step * (count - 1 - n) for n in range(count)]
    gap = range(count // 10, count // 7)
    waiting = snapshot["backlog"]["messages"]
    is_draining = bool(snapshot["syphon"].get("rate"))
    outage = _drain if is_draining else _growth
    backlog = [round(waiting * outage(1 - n / (count - 1), seconds)) for n in range(count)]
    drains = [is_draining and n > count * (1 - DRAIN) for n in range(count)]
    is_throttled = bool(snapshot["throttled"]["calls"])
    return {
        "times": times,
        "backlog": [None if n in gap else value for n, value in enumerate(backlog)],
        "rate": [snapshot["syphon"]["rate"] if drains[n] else 0 for n in range(count)],
        "throttled": [3 if is_throttled and n % 17 == 0 else 0 for n in range(count)],
    }


def _growth(before: float, seconds: int) -> float:
    """Return the backlog of an outage that goes on, as a multiple of the last one. `before` is the
    part of the history that is still to come, from 1 to 0."""
    return max(0.0, 1 - before * seconds / OUTAGE_S)


def _drain(before: float, _: int) -> float:
    """Return the backlog of an outage that has ended, as a multiple of the last one."""
    if before < DRAIN:
        return 1 + before / DRAIN
    return max(0.0, 2 * (OUTAGE - before) / (OUTAGE - DRAIN))
