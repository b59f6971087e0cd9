"""The report of a pairing to a console, and its limits."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from pairbus import events
from pairbus.events import (
    BacklogQueueMismatch,
    BacklogQueuePulled,
    BacklogQueueRestored,
    DrainStalled,
    Event,
    PathStatus,
    Pinged,
    SecondaryRestored,
    SecondaryUnavailable,
    StateChanged,
    SyphonStarted,
    SyphonStopped,
)
from pairbus.options import FailureKind
from pairbus.pairing.console_report import (
    MAX_BYTES,
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    MAX_PATHS,
    MAX_TEXT,
    SenderIdentity,
    build_report,
    describe_error,
    describe_event,
    format_time,
    is_reported,
    shorten,
)
from pairbus.pairing.snapshots import (
    PairingStatus,
    PathSnapshot,
    SecondaryHostSnapshot,
    SendCounters,
)

pytestmark = pytest.mark.rule("O4")

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
DOWN = ServiceBusConnectionError(message="down")
QUEUE = "one/x-servicebus-transfer/0"
HEALTHY, SUSPECT = PathStatus.HEALTHY, PathStatus.SUSPECT
FAILOVER, DRAINING = PathStatus.FAILOVER, PathStatus.DRAINING
IDENTITY = SenderIdentity(
    id="4fd7b3a2-8a37-4b3e-9a9e-bd1f7c8f3e55",
    host="web-1",
    process=4711,
    application="orders",
    started_at=NOON - timedelta(hours=1),
    version="0.2.0",
    primary_name="one",
    backlog_queues=10,
)
COUNTERS = SendCounters(
    sent=7,
    stored=3,
    failed=dict.fromkeys(FailureKind, 1),
    throttled=2,
    pings=9,
    pings_failed=8,
)
COUNTED = {"Probed", "Throttled"}
"""Kinds of events that are frequent, and in the counters of a report only."""
EVENTS: dict[Event, str | None] = {
    StateChanged(when=NOON, path="orders", from_state=HEALTHY, to_state=FAILOVER, cause=DOWN): (
        "orders: healthy → failover (ServiceBusConnectionError: down)"
    ),
    StateChanged(when=NOON, path="orders", from_state=FAILOVER, to_state=HEALTHY): (
        "orders: failover → healthy"
    ),
    Pinged(when=NOON, path="orders", error=DOWN): None,
    Pinged(when=NOON, path="orders"): None,
    Pinged(when=NOON, path="orders", error=OSError("deleted"), refused=True): (
        "orders: the primary refused the ping (OSError: deleted)"
    ),
    BacklogQueueMismatch(
        when=NOON,
        queue=QUEUE,
        setting="ForwardTo",
        value="other",
        expected="",
        consequence="messages are moved",
    ): f"ForwardTo of {QUEUE} is other instead of empty: messages are moved",
    BacklogQueuePulled(when=NOON, queue=QUEUE, cause=OSError("full")): (
        f"Backlog queue {QUEUE} failed and is not used for a while (OSError: full)"
    ),
    BacklogQueueRestored(when=NOON, queue=QUEUE): f"Backlog queue {QUEUE} is used again",
    SecondaryUnavailable(when=NOON, cause=OSError("gone")): (
        "The secondary cannot be reached (OSError: gone)"
    ),
    SecondaryRestored(when=NOON): "The secondary can be reached again",
    DrainStalled(when=NOON, path="orders"): (
        "orders: the primary is back, but the backlog does not shrink"
    ),
    SyphonStarted(when=NOON): "The syphon of this process started",
    SyphonStopped(when=NOON): "The syphon of this process stopped",
    SyphonStopped(when=NOON, error=OSError("Java")): (
        "The syphon of this process stopped and is restarted (OSError: Java)"
    ),
}


def path(status: PathStatus = HEALTHY, cause: BaseException | None = None) -> PathSnapshot:
    return PathSnapshot(
        status=status,
        since=NOON,
        cause=cause,
        backlog_queues=(),
        last_ping=None,
        last_error=None,
        counters=COUNTERS,
    )


def status_of(paths: dict[str, PathSnapshot], *, reachable: bool = True) -> PairingStatus:
    return PairingStatus(
        primary="one.servicebus.windows.net",
        secondary="two.servicebus.windows.net",
        secondary_host=SecondaryHostSnapshot(reachable=reachable),
        paths=paths,
        backlog={},
        fault=None,
        closed=False,
        last_error=None,
        counters=COUNTERS,
    )


def report_of(
    paths: dict[str, PathSnapshot], events: Sequence[dict[str, Any]] = (), **options: Any
) -> dict[str, Any]:
    report = build_report(status_of(paths), IDENTITY, events, time=NOON, **options)
    assert len(report) <= MAX_BYTES
    decoded: dict[str, Any] = json.loads(report)
    return decoded


def event(number: int, text: str = "") -> dict[str, Any]:
    return {"time": "…", "kind": "StateChanged", "path": "orders", "text": f"{number} {text}"}


def test_report_has_the_format_of_the_console() -> None:
    paths = {"orders": path(FAILOVER, DOWN), "bills": path()}
    status = status_of(paths, reachable=False)

    report = json.loads(
        build_report(status, IDENTITY, [event(1)], time=NOON, done=["a", "b"], closed=True)
    )

    assert report == {
        "version": 1,
        "time": "2030-01-02T12:00:00.000Z",
        "sender": {
            "id": "4fd7b3a2-8a37-4b3e-9a9e-bd1f7c8f3e55",
            "host": "web-1",
            "process": 4711,
            "application": "orders",
            "started_at": "2030-01-02T11:00:00.000Z",
            "pairbus": "0.2.0",
        },
        "primary": "one.servicebus.windows.net",
        "secondary": "two.servicebus.windows.net",
        "primary_name": "one",
        "backlog_queues": 10,
        "secondary_available": False,
        "paths": [
            {
                "path": "orders",
                "state": "failover",
                "since": "2030-01-02T12:00:00.000Z",
                "cause": "ServiceBusConnectionError: down",
            },
            {
                "path": "bills",
                "state": "healthy",
                "since": "2030-01-02T12:00:00.000Z",
                "cause": None,
            },
        ],
        "counts": {"sent": 7, "stored": 3, "failed": len(FailureKind), "throttled": 2},
        "events": [event(1)],
        "done": ["a", "b"],
        "closed": True,
    }


def test_parts_that_say_nothing_are_left_out() -> None:
    report = report_of({"orders": path()})

    assert not {"done", "closed", "omitted_paths"} & set(report)


# Events.


@pytest.mark.parametrize(("reported", "text"), EVENTS.items(), ids=lambda item: type(item).__name__)
def test_event_is_described(reported: Event, text: str | None) -> None:
    assert is_reported(reported) == (text is not None)
    if text is not None:
        assert describe_event(reported) == {
            "time": "2030-01-02T12:00:00.000Z",
            "kind": type(reported).__name__,
            "path": getattr(reported, "path", None),
            "text": text,
        }


def test_event_of_an_unknown_kind_is_not_reported() -> None:
    class Later(Event):
        pass

    assert not is_reported(Later(when=NOON))


def test_every_kind_of_event_is_in_this_test() -> None:
    named = {
        value
        for name, value in vars(events).items()
        if isinstance(value, type) and Event in value.__bases__ and name not in COUNTED
    }

    assert {type(event) for event in EVENTS} == named


def test_newest_events_are_reported_in_their_order() -> None:
    report = report_of({}, [event(number) for number in range(200)])

    assert report["events"] == [event(number) for number in range(200 - MAX_EVENTS, 200)]


def test_long_events_leave_room_for_paths() -> None:
    long = [event(number, "x" * 2 * MAX_TEXT) for number in range(MAX_EVENTS)]
    paths = {f"path-{number}": path() for number in range(300)}

    report = report_of(paths, long)

    assert len(report["paths"]) == 300
    assert 0 < len(report["events"]) < MAX_EVENTS
    assert len(json.dumps(report["events"])) <= MAX_EVENT_BYTES + 500  # json adds spaces
    assert report["events"][-1] == long[-1]


# Paths.


def test_paths_that_are_not_healthy_come_first() -> None:
    paths = {
        "a": path(),
        "b": path(SUSPECT),
        "c": path(DRAINING),
        "e": path(FAILOVER),
        "d": path(FAILOVER),
    }

    assert [item["path"] for item in report_of(paths)["paths"]] == ["d", "e", "c", "b", "a"]


def test_number_of_paths_is_limited_and_the_omitted_ones_are_healthy() -> None:
    paths = {f"path-{number}": path() for number in range(2 * MAX_PATHS)}
    paths["zz"] = path(FAILOVER)

    report = report_of(paths)

    assert report["paths"][0]["path"] == "zz"
    assert len(report["paths"]) == MAX_PATHS
    assert report["omitted_paths"] == MAX_PATHS + 1


def test_causes_become_shorter_before_a_path_is_left_out() -> None:
    cause = OSError("x" * 1000)
    few = {f"path-{number}": path(FAILOVER, cause) for number in range(20)}
    many = {f"path-{number}": path(FAILOVER, cause) for number in range(300)}
    most = {f"a-longer-path-{number}": path(FAILOVER, cause) for number in range(MAX_PATHS)}

    lengths = [{len(item["cause"] or "") for item in report_of(p)["paths"]} for p in (few, many)]

    assert lengths == [{MAX_TEXT}, {60}]
    assert len(report_of(many)["paths"]) == 300
    assert len(report_of(most)["paths"]) == MAX_PATHS
    assert "omitted_paths" not in report_of(most)


def test_path_that_does_not_fit_is_left_out_and_not_renamed() -> None:
    paths = {"x" * MAX_BYTES: path(FAILOVER), "orders": path()}

    report = report_of(paths)

    assert [item["path"] for item in report["paths"]] == ["orders"]
    assert report["omitted_paths"] == 1


@pytest.mark.parametrize("seed", range(20))
def test_report_is_never_longer_than_the_limit(seed: int) -> None:
    random = Random(seed)
    letters = ["a", "\x00", "\n", '"', "\\", "é", "東", "\U0001f600", "\ud800", "\u202e", "<"]

    def text(length: int) -> str:
        return "".join(random.choices(letters, k=random.randrange(length)))

    paths = {
        f"{number}{text(260)}": path(random.choice(list(PathStatus)), OSError(text(2000)))
        for number in range(random.randrange(700))
    }
    described = [
        describe_event(SecondaryUnavailable(when=NOON, cause=OSError(text(5000))))
        for _ in range(random.randrange(100))
    ]

    report = report_of(paths, described, done=["x" * 64] * 100, closed=True)

    assert len(report["paths"]) + report.get("omitted_paths", 0) == len(paths)


# Texts.


def test_error_has_its_class_and_its_text_on_one_line() -> None:
    assert describe_error(None) is None
    assert describe_error(TimeoutError()) == "TimeoutError"
    assert shorten(describe_error(OSError("a\r\n\tb"))) == "OSError: a b"


def test_error_without_a_text_does_not_raise() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert describe_error(BrokenError()) == "BrokenError"


@pytest.mark.parametrize(
    "text",
    [
        "Endpoint=sb://one/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0;EntityPath=q",
        "SharedAccessSignature sr=sb%3a%2f%2fone&sig=c2VjcmV0&se=1&skn=root",
        "SharedAccessSignature=c2VjcmV0",
        "authorization: Bearer c2VjcmV0",
        "https://one/q?SIG=c2VjcmV0&se=1",
    ],
)
def test_keys_and_tokens_in_an_error_are_left_out(text: str) -> None:
    described = describe_error(OSError(text))
    assert described is not None
    assert "c2VjcmV0" not in described
    assert "…" in described


def test_time_is_in_utc_with_milliseconds() -> None:
    time = datetime(2030, 1, 2, 12, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=2)))

    assert format_time(time) == "2030-01-02T10:00:00.123Z"
