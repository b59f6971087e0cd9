"""The syphon drains a backlog, between two emulated namespaces."""

import time
from collections import Counter
from datetime import timedelta
from operator import itemgetter

import pytest

from tests.backlog import Backlog
from tests.messages import content_of, message, numbered
from tests.spark.conftest import Drain, MakeSyphon
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.mark.rule("Y1", "Y2", "Y3", "Y4")
def test_every_message_arrives_unchanged_at_its_destination(backlog: Backlog, drain: Drain) -> None:
    one, two = backlog.path("one"), backlog.path("two")
    sent = {
        one: [message(f"one-{n}", ttl_ms=3_600_000, body=b"x" * n) for n in range(300)],
        two: numbered(300, "two", session="s"),
    }
    for path, payloads in sent.items():
        backlog.put(path, payloads[:150], queue=0)
        backlog.put(path, payloads[150:], queue=1)

    status = drain()

    assert status.moved == Counter({one: 300, two: 300})
    assert (status.failure, status.errors, status.unsettled) == (None, {}, 0)
    for path, payloads in sent.items():
        arrived = sorted(map(content_of, backlog.arrived(path)), key=itemgetter(0))
        assert arrived == sorted(map(content_of, payloads), key=itemgetter(0))
    assert backlog.left() == 0


@pytest.mark.rule("Y5")
def test_message_that_cannot_be_sent_is_dead_lettered_with_a_reason(
    backlog: Backlog, drain: Drain
) -> None:
    path = backlog.path("one")
    backlog.put(path, [message("good")])
    backlog.put("no-such-queue", [message("missing", session="s")])
    backlog.put_raw([message("no path")])

    status = drain(missing_destination_grace=timedelta(seconds=2))

    assert backlog.ids(path) == ["good"]
    assert status.batches > 1, "the message for the missing destination was not held"
    assert sorted(reason for reason, _ in backlog.dead_letters()) == [
        "EntityNotFound",
        "MissingPath",
    ]
    assert all(description for _, description in backlog.dead_letters())
    assert status.dead_lettered == {"no-such-queue": 1, "": 1}
    assert status.dead_letter_reasons == {
        "no-such-queue": {"EntityNotFound": 1},
        "": {"MissingPath": 1},
    }
    assert (status.drained, status.healthy, status.errors) == (True, True, {})
    assert backlog.left() == 0


@pytest.mark.rule("Y4", "Y5")
def test_messages_for_a_missing_destination_are_delivered_when_it_is_created(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    up, missing = backlog.path("up"), f"{backlog.name}-missing"
    backlog.put(missing, numbered(20, "missing", session="s"))
    backlog.put(up, numbered(20, "up"))

    with make_syphon() as syphon:
        wait_until(lambda: missing in syphon.status().errors, "the destination to be missing")
        wait_until(lambda: syphon.status().moved[up] == 20, "the messages for the other one")
        status = syphon.status()
        assert not status.healthy
        assert (status.problem or "").startswith(
            f"{missing} does not exist; its messages wait until "
        )
        assert (status.dead_lettered, backlog.left()) == ({}, 20)
        backlog.path("missing")
        wait_until(lambda: syphon.status().moved[missing] == 20, "the messages that were held")
        wait_until(lambda: syphon.status().healthy, "the problem to end")

    assert backlog.ids(missing) == [f"missing-{n}" for n in range(20)]
    assert (backlog.left(), backlog.dead_letters()) == (0, [])


@pytest.mark.rule("Y4", "Y5")
def test_destination_that_is_down_does_not_delay_others(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    up, down = backlog.path("up"), backlog.path("down")
    fault = backlog.primary.add_fault("disable", down)
    backlog.put(down, numbered(50, "down", session="s"))
    backlog.put(up, numbered(50, "up"))

    with make_syphon() as syphon:
        wait_until(
            lambda: syphon.status().moved[up] == 50, "the messages for the destination that is up"
        )
        assert fault.fired > 0
        assert syphon.status().moved[down] == 0
        wait_until(lambda: down in syphon.status().errors, "the end of the micro-batch")
        backlog.primary.clear_faults()
        wait_until(
            lambda: syphon.status().moved[down] == 50,
            "the messages for the destination that was down",
        )

    assert backlog.ids(down) == [f"down-{n}" for n in range(50)]
    assert backlog.left() == 0


@pytest.mark.rule("S12")
def test_sessions_keep_their_order_when_sends_fail(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path = backlog.path("ordered", requires_session=True)
    names = ("a", "b", "c")
    backlog.put(path, [message(f"{s}-{n}", session=s) for n in range(1500) for s in names])
    fault = backlog.primary.add_fault("internal-error", path, after=1, count=2)

    with make_syphon() as syphon:
        wait_until(lambda: syphon.status().moved[path] == 4500, "all messages")

    assert fault.fired == 2
    arrived = backlog.ids(path)
    for name in names:
        assert [id for id in arrived if id.startswith(name)] == [f"{name}-{n}" for n in range(1500)]


@pytest.mark.rule("Y3")
def test_time_in_the_backlog_can_be_deducted_from_the_time_to_live(
    backlog: Backlog, drain: Drain
) -> None:
    path = backlog.path("one")
    backlog.put(path, [message("short", ttl_ms=1), message("long", ttl_ms=3_600_000)])

    drain(ttl="deduct")

    assert backlog.ids(path) == ["long"]
    assert [reason for reason, _ in backlog.dead_letters()] == ["TTLExpiredException"]


@pytest.mark.rule("Y8")
def test_only_messages_for_selected_destinations_are_moved(backlog: Backlog, drain: Drain) -> None:
    wanted, other = backlog.path("wanted"), backlog.path("other")
    backlog.put(wanted, [message("w")])
    backlog.put(other, [message("o")])

    status = drain(only=(wanted,))

    assert status.moved == Counter({wanted: 1})
    assert backlog.ids(other) == []
    assert backlog.left() == 1


@pytest.mark.rule("Y6")
def test_idle_syphon_costs_one_receive_for_each_poll_and_queue(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    def receives() -> dict[str, int]:
        meter = backlog.secondary.meter()
        return {
            queue: meter[queue, "receive"].operations if (queue, "receive") in meter else 0
            for queue in backlog.queues
        }

    poll = timedelta(seconds=3)
    began = time.monotonic()
    with make_syphon(poll=poll):
        wait_until(lambda: min(receives().values()) >= 3, "three polls of each queue")
        counts = receives()
    polls = (time.monotonic() - began) / poll.total_seconds()

    # A poll is counted when it ends, so there cannot be more than fit into the time.
    assert max(counts.values()) <= polls
    # The polls of both queues start at the same time, and there are no other operations.
    assert max(counts.values()) - min(counts.values()) <= 1
    operations = {kind for (queue, kind) in backlog.secondary.meter() if queue in backlog.queues}
    assert operations == {"receive"}


@pytest.mark.rule("Y6")
def test_long_poll_continues_after_its_link_was_detached(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path = backlog.path("one")
    with make_syphon() as syphon:
        backlog.put(path, [message("before")])
        wait_until(lambda: syphon.status().moved[path] == 1, "the first message")
        fault = backlog.secondary.add_fault("expire-tokens", backlog.queues[0], count=1)
        wait_until(lambda: fault.fired == 1, "the link of the long poll to be detached")
        backlog.put(path, [message("after")])
        wait_until(lambda: syphon.status().moved[path] == 2, "the second message")

    assert backlog.ids(path) == ["before", "after"]


@pytest.mark.rule("Y2", "X1")
def test_primary_that_stops_during_the_drain_loses_nothing(
    backlog: Backlog, make_syphon: MakeSyphon
) -> None:
    path = backlog.path("one", requires_duplicate_detection=True)
    ids = [f"m-{n}" for n in range(3000)]
    with make_syphon(max_messages_per_trigger=500) as syphon:
        backlog.put(path, [message(id) for id in ids[:1500]])
        wait_until(lambda: syphon.status().moved[path] > 0, "the first message")
        backlog.primary.stop()
        backlog.put(path, [message(id) for id in ids[1500:]])
        backlog.primary.start()
        wait_until(lambda: backlog.left() == 0, "the backlog to be empty")

    assert sorted(backlog.ids(path)) == sorted(ids)


@pytest.mark.rule("Y8")
def test_rate_limit_is_not_exceeded(backlog: Backlog, make_syphon: MakeSyphon) -> None:
    path = backlog.path("one")
    backlog.put(path, numbered(60))

    with make_syphon(max_rate=20) as syphon:
        wait_until(lambda: syphon.status().moved[path] == 60, "all messages")
        status = syphon.status()

    # A micro-batch has at most the messages of one second, and those of the long polls.
    assert status.batches >= 60 // (20 + len(backlog.queues))
