"""Each state that the page must show well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pairbus.backlog.syphon_control import Control
from pairbus.console.inspection import NamespaceInspection, SyphonView
from pairbus.console.outage import OUTAGE_INTERVAL_S
from tests.browser.snapshots import (
    CAUSE,
    NOW,
    Report,
    Snapshot,
    ago,
    dead_letters,
    destination,
    event,
    inspection,
    path,
    queue,
    report,
    snapshot,
    syphon,
    without_secondary,
)

OUTAGE_S = 242
OUTAGE, DRAIN = 0.6, 0.2
"""The parts of a history since the start of an outage that has ended, and since its end."""
LONG_NAME = "eu-west-1-production/" + "payments-and-settlements-reconciliation-" * 5 + "v2"
HEBREW, ARABIC = "הזמנות-לקוח", "طلبات/العملاء"
OVERRIDE = "orders\u202egnp.exe\u0000\u200b\n"
MARKUP = '<img src=x onerror="document.body.dataset.hacked=1"><script>alert(1)</script>&amp;<b>bold'
COST = {"currency": "USD", "so_far": 0.0257, "forecast": 0.31}
REFUSED = "connection refused"
STUCK = "the primary accepted no message for 240 s (orders: connection refused)"


def _backlog(primary: str | None = None) -> NamespaceInspection:
    """Return an inspection that found 12,430 messages."""
    counts = {**dict.fromkeys(range(5), 1243), 7: 6215}
    return inspection(
        *(queue(index, messages, oldest=240) for index, messages in counts.items()),
        destinations=[destination("orders", 9810, 242), destination("invoices", 2620, 238)],
        primary=primary,
    )


def healthy() -> Snapshot:
    paths = [path("orders"), path("invoices"), path("shipments/eu")]
    return snapshot(
        *(report(number, *paths) for number in (1, 2, 3)), seen=inspection(), syphon=syphon()
    )


def _failed_senders() -> list[Report]:
    failed = [path("invoices", "failover", since=238), path("orders", "failover", since=242)]
    suspect = path("shipments/eu", "suspect", since=9)
    events = [
        event(242, f"orders: suspect → failover ({CAUSE})"),
        event(238, f"invoices: suspect → failover ({CAUSE})"),
        event(9, "shipments/eu: healthy → suspect (ServiceBusConnectionError: timed out)"),
    ]
    return [
        report(1, *failed, suspect, path("returns"), events=events),
        report(2, *failed, path("shipments/eu"), path("returns")),
        report(3, *failed, path("shipments/eu"), path("returns"), silent=True),
    ]


def failover() -> Snapshot:
    return snapshot(
        *_failed_senders(),
        seen=_backlog(primary=REFUSED),
        syphon=syphon(problem=STUCK),
        throttled=17,
        cost=COST,
        interval_s=OUTAGE_INTERVAL_S,
        events=[
            (241, "An outage began."),
            (236, f"The primary is not available: {REFUSED}."),
        ],
    )


def draining() -> Snapshot:
    paths = [path("orders", "draining", since=70), path("invoices", "draining", since=60)]
    control = Control(max_rate=1000.0, max_rates={"invoices": 100.0})
    return snapshot(
        report(1, *paths, events=[event(70, "orders: failover → draining")]),
        report(2, *paths),
        report(3, *paths),
        seen=_backlog(),
        syphon=syphon(control, rate=812.4, seconds_to_go=240.0, moved=48_120, throttled_sends=14),
        throttled=17,
        cost=COST,
        interval_s=OUTAGE_INTERVAL_S,
        events=[(64, "The primary is available again.")],
    )


def stuck() -> Snapshot:
    problem = "the primary accepted no message for 960 s (invoices: the entity does not exist)"
    seen = inspection(
        queue(0, 2620, 12, oldest=4200),
        destinations=[destination("invoices", 2620, 4200)],
        dead=[dead_letters("invoices", "EntityNotFound", 12)],
        estimated=True,
    )
    paths = [path("orders", since=3300), path("invoices", since=3300)]
    return snapshot(
        *(report(number, *paths) for number in (1, 2, 3)),
        seen=seen,
        syphon=syphon(problem=problem, moved=48_120),
        cost=COST,
        interval_s=OUTAGE_INTERVAL_S,
    )


def secondary_down() -> Snapshot:
    failed = [path("invoices", "failover", since=238), path("orders", "failover", since=242)]
    text = f"The secondary cannot be reached ({CAUSE})"
    reports = [report(number, *failed, events=[event(30, text)]) for number in (1, 2, 3)]
    for each in reports:
        each.values["secondary_available"] = False
    return snapshot(
        *reports,
        seen=without_secondary(),
        syphon=SyphonView(),
        cost=COST,
        interval_s=OUTAGE_INTERVAL_S,
    )


def nothing_reports() -> Snapshot:
    return snapshot(seen=inspection(), syphon=SyphonView())


def nothing_is_known() -> Snapshot:
    """Return the first snapshot of a console that has just started."""
    return snapshot(seen=None, syphon=SyphonView())


def many_paths() -> Snapshot:
    states = ["failover"] * 31 + ["draining"] * 9 + ["suspect"] * 2 + ["healthy"] * 158
    paths = [path(f"tenant-{n:03}/orders", state) for n, state in enumerate(states)]
    events = [event(n, f"tenant-{n:03}/orders: suspect → failover") for n in range(31)]
    return snapshot(
        *(report(n, *paths, events=events if n < 4 else ()) for n in range(212)),
        seen=replace(
            _backlog(primary=REFUSED),
            destinations=tuple(
                destination(f"tenant-{n:03}/orders", 1000 - n, 242) for n in range(40)
            ),
            estimated=True,
        ),
        syphon=syphon(problem=STUCK),
        cost=COST,
        interval_s=OUTAGE_INTERVAL_S,
    )


def _named(*names: str) -> Snapshot:
    """Return a failover in which each name of the page is one of these names."""
    first, last = names[0], names[-1]
    events = [event(5, f"{name}: healthy → failover ({name})") for name in names]
    for number, each in enumerate(events):
        each["time"] = ago(5 + number)
    return snapshot(
        report(
            1,
            *(path(name, "failover", since=242) | {"cause": name} for name in names),
            events=events,
            host=first,
            application=last,
        ),
        seen=inspection(
            queue(0, 12_430, 3, 242, name=first),
            destinations=[destination(name, 9810, 242) for name in names],
            dead=[dead_letters(name, name, 12_345) for name in names],
            primary=first,
        ),
        syphon=syphon(Control(max_rates={first: 10.0}), problem=first),
        redrives=[redrive("running", first, last, moved=50)],
        primary=f"{first}.servicebus.windows.net",
    )


def redrive(
    state: str, destination: str, reason: str, *, moved: int, total: int = 100_000, text: str = ""
) -> Snapshot:
    is_running = state == "running"
    return {
        "id": f"redrive-{state}",
        "started_at": ago(300),
        "state": state,
        "moved": moved,
        "left": total - moved,
        "total": total,
        "rate": 420.0 if is_running else None,
        "seconds_to_go": (total - moved) / 420 if is_running else None,
        "destination": destination,
        "reason": reason,
        "dry_run": False,
        "text": text or "Moving dead letters.",
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
    left = "17\u202f880 were not tried and stay dead letters."
    return snapshot(
        *(report(number, path("orders"), path("invoices")) for number in (1, 2, 3)),
        seen=inspection(
            *(queue(index, 0, 10_000) for index in range(10)),
            dead=[dead_letters(*group) for group in groups],
            estimated=True,
        ),
        syphon=syphon(),
        redrives=[
            redrive("running", "orders", "MaxDeliveryCountExceeded", moved=23_456, total=104_658),
            redrive("cancelled", "invoices", "EntityNotFound", moved=120, total=18_000)
            | {"text": f"120 moved. {left}"},
            redrive("done", "returns", "TTLExpiredException", moved=40, total=40, text="40 moved."),
            redrive("failed", "shipments/eu", "EntityNotFound", moved=0)
            | {"total": None, "left": None, "dry_run": True}
            | {"text": "The secondary cannot be reached: connection refused. Nothing is lost."},
        ],
    )


STATES: dict[str, Callable[[], Snapshot]] = {
    function.__name__: function
    for function in (
        healthy,
        failover,
        draining,
        stuck,
        secondary_down,
        nothing_reports,
        nothing_is_known,
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
    waiting = snapshot["backlog"]["messages"] or 0
    is_unknown = snapshot["backlog"]["messages"] is None
    is_draining = bool(snapshot["syphon"]["rate"])
    outage = _drain if is_draining else _growth
    backlog = [round(waiting * outage(1 - n / (count - 1), seconds)) for n in range(count)]
    drains = [is_draining and n > count * (1 - DRAIN) for n in range(count)]
    is_throttled = bool(snapshot["throttled"]["operations"])
    return {
        "times": times,
        "backlog": [
            None if n in gap or (is_unknown and n > count - 5) else value
            for n, value in enumerate(backlog)
        ],
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
