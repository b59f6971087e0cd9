"""Links to the backlog that are opened while a path is suspect."""

from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus.exceptions import MessagingEntityDisabledError

from pairbus.events import PathStatus, StateChanged
from tests.integration.pairs import MINUTE, Make, Pair, gather_all, message, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, SUSPECT, FAILOVER = PathStatus.HEALTHY, PathStatus.SUSPECT, PathStatus.FAILOVER


def links(pair: Pair) -> list[str]:
    """Return the backlog queues of the open links to them."""
    queues = {queue.casefold() for queue in pair.backlog_queues}
    paths: list[str] = pair.secondary.call(lambda core: [link.path for link in core.incoming_links])
    return [path for path in paths if path.casefold() in queues]


def operations(pair: Pair) -> int:
    """Return the billable operations on the backlog queues, their creation included."""
    queues = {queue.casefold() for queue in pair.backlog_queues}
    return sum(
        reading.operations
        for (path, _), reading in pair.secondary.meter().items()
        if path.casefold() in queues
    )


async def make_suspect(pair: Pair, *senders: Any) -> list[Any]:
    """Let sends fail, so that paths are suspect. Return the faults."""
    faults = [pair.fault("disable", sender.entity_name) for sender in senders]
    for sender in senders:
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(message())
        assert pair.state(sender.entity_name) is SUSPECT
    assert all(fault.fired for fault in faults)
    return faults


@pytest.mark.rule("S1", "S3", "S4")
async def test_link_is_opened_when_the_path_becomes_suspect_and_used_in_failover(
    make: Make,
) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    await sender.send_messages(message())
    assert links(pair) == []  # the path is healthy
    before = operations(pair)
    (fault,) = await make_suspect(pair, sender)

    # The namespace has the link before the sender does.
    await until(lambda: sender._links.standby, "a link to the backlog")
    opened = links(pair)
    assert len(opened) == 1
    assert operations(pair) == before
    pair.advance(60)
    await pair.until_state(queue, FAILOVER)
    await sender.send_messages(message("in failover"))

    assert links(pair) == opened
    assert [item.path for item in pair.in_queue(opened[0])] == [queue]
    assert operations(pair) == before + 1
    pair.remove_faults(fault)


@pytest.mark.rule("S1", "S4")
async def test_link_that_was_not_used_is_closed_when_the_path_is_healthy(make: Make) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    before = operations(pair)
    (fault,) = await make_suspect(pair, sender)
    await until(lambda: len(links(pair)) == 1, "a link to the backlog")

    pair.remove_faults(fault)
    await sender.send_messages(message())

    assert pair.state(queue) is HEALTHY
    await until(lambda: links(pair) == [], "the link to be closed")
    assert operations(pair) == before
    assert {type(event) for event in pair.events} == {StateChanged}


@pytest.mark.rule("S4")
async def test_each_sender_of_a_suspect_path_gets_a_link(make: Make) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    queue, other = pair.queues(2)
    first, second, _ = await pair.entered(queue, queue, other)
    await make_suspect(pair, first)
    await until(lambda: len(links(pair)) == 2, "the links to the backlog")
    opened = sorted(links(pair))
    pair.advance(60)
    await pair.until_state(queue, FAILOVER)

    await gather_all(sender.send_messages(message()) for sender in (first, second))

    assert sorted(links(pair)) == opened
    assert len(pair.backlog(queue)) == 2


@pytest.mark.rule("S14")
@pytest.mark.parametrize("closes", ["sender", "pairing"])
async def test_link_is_closed_with_its_sender(make: Make, closes: str) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    (sender,) = await pair.entered(pair.queue())
    await make_suspect(pair, sender)
    await until(lambda: len(links(pair)) == 1, "a link to the backlog")

    await (sender.close() if closes == "sender" else pair.close())

    await until(lambda: links(pair) == [], "the link to be closed")


DISTURBANCES: dict[str, Callable[[Pair], Any]] = {
    "refuses": lambda pair: pair.secondary.add_fault("refuse-tokens", status=401),
    "hangs": lambda pair: pair.secondary.add_fault("ignore-tokens"),
}


@pytest.mark.rule("S1", "S4")
@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_secondary_that_refuses_or_hangs_changes_nothing_for_a_suspect_path(
    make: Make, disturbance: str
) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    fault = DISTURBANCES[disturbance](pair)

    (disabled,) = await make_suspect(pair, sender)
    await until(lambda: fault.fired > 0, "an attempt to open a link")
    with pytest.raises(MessagingEntityDisabledError):  # the next call is not delayed either
        await sender.send_messages(message())

    assert {type(event) for event in pair.events} == {StateChanged}
    assert pair.bus.status().secondary_host.reachable
    pair.secondary.call(lambda core: core.faults.remove(fault))
    pair.advance(60)
    await pair.until_state(queue, FAILOVER)
    await sender.send_messages(message())
    assert len(pair.backlog(queue)) == 1
    pair.remove_faults(disabled)


@pytest.mark.rule("S1", "S4")
async def test_secondary_that_is_down_changes_nothing_for_a_suspect_path(make: Make) -> None:
    pair = await make(fake_clock=True, failover_interval=MINUTE)
    queue = pair.queue()
    (sender,) = await pair.entered(queue)
    pair.secondary.stop()

    (fault,) = await make_suspect(pair, sender)
    with pytest.raises(MessagingEntityDisabledError):
        await sender.send_messages(message())

    assert {type(event) for event in pair.events} == {StateChanged}
    assert pair.bus.status().secondary_host.reachable
    pair.remove_faults(fault)
    await sender.send_messages(message())
    assert pair.state(queue) is HEALTHY
    pair.secondary.start()
