"""All senders of a pairing share failover, failback and pulled queues."""

from typing import Any

import pytest
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError

from pairbus.events import BacklogQueuePulled, BacklogQueueRestored, PathStatus, Pinged
from tests.integration.pairs import MINUTE, Make, Pair, gather_all, message, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEALTHY, FAILOVER = PathStatus.HEALTHY, PathStatus.FAILOVER


async def in_failover(pair: Pair, number: int) -> tuple[str, list[Any]]:
    """Return a path in failover, and senders that have stored one message each."""
    queue = pair.queue()
    fault = pair.fault("internal-error", queue)
    senders = [pair.sender(queue) for _ in range(number)]
    await senders[0].send_messages(message("0"))
    assert fault.fired == 1
    await gather_all(sender.send_messages(message(str(i))) for i, sender in enumerate(senders) if i)
    assert fault.fired == 1
    return queue, senders


def queues_of(pair: Pair, number: int) -> list[str]:
    """Return the backlog queue with the message of each sender."""
    from pairbus.amqp.sections import Message

    places = {
        int(Message.parse(restored.payload).read_body()[1][0]): queue
        for queue in pair.backlog_queues
        for restored in pair.in_queue(queue)
    }
    return [places[sender] for sender in range(number)]


@pytest.mark.rule("S3", "S4", "G2")
async def test_all_senders_of_a_path_fail_over_and_back_together(make: Make) -> None:
    pair = await make(fake_clock=True, ping_jitter=0.0)
    broken, fine, topic = pair.queue(), pair.queue(), pair.topic()
    *senders, other = await pair.entered(broken, broken, broken, fine)
    publisher = pair.sender(topic, topic=True)
    fault = pair.fault("internal-error", broken)
    await senders[0].send_messages(message())
    await gather_all(sender.send_messages(message()) for sender in (*senders[1:], other, publisher))
    assert fault.fired == 1  # later sends did not call the primary
    assert [pair.state(path) for path in (broken, fine, topic)] == [FAILOVER, HEALTHY, HEALTHY]
    assert {restored.path for restored in pair.backlog()} == {broken}
    assert len(pair.backlog()) == 3
    assert pair.arrived(broken) == []
    assert len(pair.arrived(fine)) == 1

    pair.remove_faults(fault)
    pair.advance(60)
    await pair.until_state(broken, HEALTHY)
    await gather_all(sender.send_messages(message()) for sender in senders)
    assert len(pair.arrived(broken)) == 3
    assert len(pair.backlog()) == 3
    assert [event.error for event in pair.of(Pinged)] == [None]
    assert pair.changes(broken) == [(HEALTHY, FAILOVER), (FAILOVER, HEALTHY)]
    assert pair.changes(fine) == pair.changes(topic) == []


@pytest.mark.rule("S4")
async def test_sender_keeps_its_backlog_queue(make: Make) -> None:
    pair = await make()
    path, senders = await in_failover(pair, 3)
    chosen = queues_of(pair, 3)
    for _ in range(5):
        await gather_all(sender.send_messages(message(str(i))) for i, sender in enumerate(senders))
    held = {queue: len(pair.in_queue(queue)) for queue in pair.backlog_queues}
    assert held == {queue: 6 * chosen.count(queue) for queue in pair.backlog_queues}
    assert set(pair.bus.status().paths[path].backlog_queues) == set(chosen)


@pytest.mark.rule("S4")
@pytest.mark.parametrize("lost", ["fails", "deleted"])
async def test_failed_backlog_queue_is_left_by_all_senders(make: Make, lost: str) -> None:
    pair = await make(backlog_queue_count=2, backlog_cool_down=MINUTE)
    _, senders = await in_failover(pair, 3)
    chosen = queues_of(pair, 3)
    queue = max(chosen, key=chosen.count)  # two of three senders have the same queue
    sharing = [sender for sender, name in zip(senders, chosen, strict=True) if name == queue]
    (left,) = set(pair.backlog_queues) - {queue}
    if lost == "deleted":
        pair.secondary.call(lambda core: core.entities.delete(queue))
        kind: type[Exception] = MessagingEntityNotFoundError
    else:
        fault = pair.secondary.add_fault("internal-error", queue)
        kind = ServiceBusError
    await sharing[0].send_messages(message("moved"))
    (pulled,) = pair.of(BacklogQueuePulled)
    assert pulled.queue == queue
    status = pair.bus.status().backlog
    assert not status[queue].in_rotation
    assert status[left].in_rotation
    if lost == "fails":
        assert fault.fired == 1
        assert isinstance(pulled.cause, kind)
    await gather_all(sender.send_messages(message("moved")) for sender in senders)
    assert pair.of(BacklogQueuePulled) == [pulled]
    if lost == "fails":
        assert fault.fired == 1
    assert len(pair.in_queue(left)) == (3 - len(sharing)) + 4


@pytest.mark.rule("S4")
async def test_pulled_queue_is_restored_after_its_cool_down(make: Make) -> None:
    pair = await make(backlog_queue_count=2, backlog_cool_down=MINUTE, fake_clock=True)
    _, (sender,) = await in_failover(pair, 1)
    (first,) = queues_of(pair, 1)
    (second,) = set(pair.backlog_queues) - {first}
    faults = [pair.secondary.add_fault("internal-error", first, count=1)]
    await sender.send_messages(message())
    assert len(pair.in_queue(second)) == 1
    pair.clock.time += 59
    faults.append(pair.secondary.add_fault("internal-error", second, count=1))
    with pytest.raises(Exception, match=r"any of the . backlog queues"):
        await sender.send_messages(message())  # the first queue is still pulled
    assert [fault.fired for fault in faults] == [1, 1]
    pair.clock.time += 1
    await sender.send_messages(message())
    assert len(pair.in_queue(first)) == 2
    assert [event.queue for event in pair.of(BacklogQueuePulled)] == [first, second]
    assert [event.queue for event in pair.of(BacklogQueueRestored)] == [first]
    assert pair.bus.status().backlog[first].in_rotation
    await sender.send_messages(message())
    assert len(pair.in_queue(first)) == 3


@pytest.mark.rule("S4")
async def test_creating_a_batch_in_failover_releases_its_queue(make: Make) -> None:
    pair = await make(backlog_queue_count=1, backlog_cool_down=MINUTE, fake_clock=True)
    _, (sender,) = await in_failover(pair, 1)
    (queue,) = pair.backlog_queues
    fault = pair.secondary.add_fault("internal-error", queue, count=1)
    with pytest.raises(Exception, match=r"any of the . backlog queues"):
        await sender.send_messages(message())
    assert fault.fired == 1
    pair.clock.time += 60
    batch = await sender.create_message_batch()  # this does not restore the queue
    batch.add_message(message())
    await sender.send_messages(batch)
    await until(lambda: pair.bus.status().backlog[queue].in_rotation, "the queue to come back")
    assert len(pair.in_queue(queue)) == 2
