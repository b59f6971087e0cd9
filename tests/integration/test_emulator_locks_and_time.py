"""Locks, time-to-live and idleness in a local namespace, with the azure-servicebus SDK."""

import datetime
import time

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from azure.servicebus.exceptions import MessageLockLostError, MessagingEntityNotFoundError

from pairbus.amqp.client import Receiver
from pairbus.amqp.performatives import Modified, Rejected, Released
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import LockLost
from tests.integration.emulator_fixtures import (
    Bench,
    bench,
    eventually,
    is_empty,
    module_bench,
    take,
    take_one,
)
from tests.interop.sdk_cases import BRISK, IMPATIENT

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SECOND = datetime.timedelta(seconds=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def let_locks_expire(bench: Bench, queue: str) -> None:
    eventually(lambda: bench.namespace.call(lambda core: not core.entities.get(queue).queue._locks))


class TestLocks:
    def test_message_is_locked_for_the_lock_duration_of_the_queue(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=30 * SECOND)
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("x"))
        message = take_one(receiver)
        assert message.locked_until_utc - message.enqueued_time_utc >= 30 * SECOND

    def test_settling_after_the_lock_is_lost_is_refused(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=0.5 * SECOND)
        sender, receiver = bench.pair(queue)
        sender.send_messages([ServiceBusMessage(f"{i}") for i in range(4)])
        messages = take(receiver, 4)
        let_locks_expire(bench, queue)
        for message, settle in zip(
            messages, ("complete", "abandon", "defer", "dead_letter"), strict=True
        ):
            with pytest.raises(MessageLockLostError):
                getattr(receiver, f"{settle}_message")(message)
        assert bench.runtime(queue).counts.active == 4
        again = take(receiver, 4)
        assert [message.sequence_number for message in again] == [1, 2, 3, 4]
        assert {message.delivery_count for message in again} == {1}

    def test_settlement_with_an_expired_lock_is_rejected_on_the_link(self, bench: Bench) -> None:
        """Use our client, because the SDK checks the expiry of a lock by its own clock."""
        queue = bench.queue(lock_duration=0.3 * SECOND)
        bench.sender(queue).send_messages(ServiceBusMessage("x"))
        receiver = Receiver(bench.raw(), queue)
        for state in (None, Released(), Modified(undeliverable_here=True), Rejected()):
            deliveries = receiver.receive(1)
            let_locks_expire(bench, queue)
            with pytest.raises(LockLost) as refused:
                receiver.settle(deliveries, state)
            assert refused.value.condition == "com.microsoft:message-lock-lost"
            assert bench.runtime(queue).counts.active == 1

    def test_settlement_with_an_expired_lock_does_not_affect_the_next_lock(
        self, bench: Bench
    ) -> None:
        queue = bench.queue(lock_duration=SECOND)
        bench.sender(queue).send_messages(ServiceBusMessage("x"))
        client = bench.raw()
        first, second = Receiver(client, queue), Receiver(client, queue)
        stale = first.receive(1)
        let_locks_expire(bench, queue)
        held = second.receive(1)
        with pytest.raises(LockLost):
            first.settle(stale)
        second.settle(held)
        assert bench.held(queue) == 0

    def test_lost_locks_count_as_deliveries_up_to_the_maximum(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=0.2 * SECOND, max_delivery_count=2)
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue), bench.dead_letters(queue)
        )
        sender.send_messages(ServiceBusMessage("x"))
        assert [take_one(receiver).delivery_count for _ in range(2)] == [0, 1]
        letter = take_one(dead)
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"

    def test_renewed_lock_is_kept(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=3 * SECOND)
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("x"))
        message = take_one(receiver)
        before = message.locked_until_utc
        while now() < before:  # often, so that a delay on a busy machine does no harm
            time.sleep(0.2)
            until = receiver.renew_message_lock(message)
            assert until > before
            assert message.locked_until_utc == until
        receiver.complete_message(message)
        assert bench.held(queue) == 0

    def test_lost_lock_cannot_be_renewed(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=0.3 * SECOND)
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("x"))
        message = take_one(receiver)
        let_locks_expire(bench, queue)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)

    def test_sdk_renews_a_message_lock_automatically(self, bench: Bench) -> None:
        queue = bench.queue(lock_duration=5 * SECOND)
        lost: list[ServiceBusReceivedMessage] = []
        with AutoLockRenewer(
            on_lock_renew_failure=lambda message, _: lost.append(message)
        ) as renewer:
            sender, receiver = bench.pair(queue)
            sender.send_messages(ServiceBusMessage("x"))
            message = take_one(receiver)
            end = message.locked_until_utc + SECOND
            renewer.register(receiver, message, max_lock_renewal_duration=30)
            eventually(lambda: now() > end)
            receiver.complete_message(message)
        assert lost == []
        assert bench.held(queue) == 0


class TestTimeToLive:
    def test_expired_message_is_dropped(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        sender.send_messages(
            [
                ServiceBusMessage("short", time_to_live=SECOND),
                ServiceBusMessage("long", time_to_live=60 * SECOND),
            ]
        )
        eventually(lambda: bench.held(queue) == 1)
        message = take_one(receiver)
        assert str(message) == "long"
        assert message.expires_at_utc - message.enqueued_time_utc == 60 * SECOND

    def test_expired_message_is_dead_lettered_if_the_queue_is_set_so(self, bench: Bench) -> None:
        queue = bench.queue(dead_lettering_on_message_expiration=True)
        sender, dead = bench.open(bench.sender(queue), bench.dead_letters(queue))
        sender.send_messages(ServiceBusMessage("x", time_to_live=SECOND))
        letter = take_one(dead)
        assert letter.dead_letter_reason == "TTLExpiredException"
        assert letter.dead_letter_source == queue
        assert bench.runtime(queue).counts.active == 0

    def test_default_time_to_live_of_the_queue_limits_all_messages(self, bench: Bench) -> None:
        queue = bench.queue(
            default_message_time_to_live=SECOND, dead_lettering_on_message_expiration=True
        )
        bench.sender(queue).send_messages(
            [ServiceBusMessage("x"), ServiceBusMessage("y", time_to_live=60 * SECOND)]
        )
        eventually(lambda: bench.runtime(queue).counts.dead_letter == 2)

    def test_locked_message_can_be_completed_after_its_expiry(self, bench: Bench) -> None:
        queue = bench.queue(dead_lettering_on_message_expiration=True)
        sender, receiver = bench.pair(queue)
        sender.send_messages(ServiceBusMessage("x", time_to_live=2.5 * SECOND))
        message = take_one(receiver)
        eventually(lambda: now() > message.expires_at_utc + 0.2 * SECOND)
        receiver.complete_message(message)
        assert bench.held(queue) == 0

    def test_time_to_live_of_a_scheduled_message_starts_when_it_is_due(self, bench: Bench) -> None:
        queue = bench.queue()
        sender, receiver = bench.pair(queue)
        later = ServiceBusMessage("x", time_to_live=2.5 * SECOND)
        sender.schedule_messages(later, now() + 3 * SECOND)
        assert str(take_one(receiver)) == "x"


class Clock:
    """A clock that a test moves forward."""

    def __init__(self) -> None:
        self.ahead = datetime.timedelta()

    def __call__(self) -> int:
        return int((now() + self.ahead).timestamp() * 1000)


class TestIdleness:
    MINUTES = datetime.timedelta(minutes=1)

    def test_idle_entity_is_deleted(self) -> None:
        clock = Clock()
        with LocalNamespace("idle", now_ms=clock) as namespace:
            namespace.create_queue("kept")
            namespace.create_queue("idle", auto_delete_on_idle=5 * self.MINUTES)
            namespace.create_topic("news", auto_delete_on_idle=20 * self.MINUTES)
            namespace.create_subscription("news", "idle", auto_delete_on_idle=5 * self.MINUTES)
            namespace.create_subscription("news", "kept")
            assert len(paths(namespace)) == 5
            clock.ahead = 6 * self.MINUTES
            eventually(lambda: paths(namespace) == ["kept", "news", "news/Subscriptions/kept"])
            clock.ahead = 21 * self.MINUTES
            eventually(lambda: paths(namespace) == ["kept"])

    def test_entity_in_use_is_kept(self) -> None:
        clock = Clock()
        with (
            LocalNamespace("used", now_ms=clock) as namespace,
            ServiceBusClient.from_connection_string(
                namespace.connection_string, **IMPATIENT
            ) as client,
        ):
            for name in ("received", "sent", "idle"):
                namespace.create_queue(name, auto_delete_on_idle=5 * self.MINUTES)
            receiver = client.get_queue_receiver("received", **BRISK)
            sender = client.get_queue_sender("sent", **BRISK)
            with receiver:
                assert is_empty(receiver)
                clock.ahead = 4 * self.MINUTES
                with sender:
                    sender.send_messages(ServiceBusMessage("x"))
                clock.ahead = 8 * self.MINUTES
                eventually(lambda: paths(namespace) == ["received", "sent"])
                with pytest.raises(MessagingEntityNotFoundError):
                    client.get_queue_sender("idle", **BRISK).send_messages(ServiceBusMessage("x"))
            wait_for_no_links(namespace, "received")
            clock.ahead = 12 * self.MINUTES
            eventually(lambda: paths(namespace) == ["received"])
            clock.ahead = 14 * self.MINUTES
            eventually(lambda: paths(namespace) == [])

    def test_time_of_last_access_survives_a_restart(self) -> None:
        clock = Clock()
        with LocalNamespace("restarted", now_ms=clock) as namespace:
            namespace.create_queue("q", auto_delete_on_idle=5 * self.MINUTES)
            clock.ahead = 4 * self.MINUTES
            with (
                ServiceBusClient.from_connection_string(namespace.connection_string) as client,
                client.get_queue_sender("q", **BRISK) as sender,
            ):
                sender.send_messages(ServiceBusMessage("x"))
            namespace.stop()
            clock.ahead = 8 * self.MINUTES
            namespace.start()
            namespace.call(lambda core: core.tick())
            assert paths(namespace) == ["q"]
            clock.ahead = 10 * self.MINUTES
            eventually(lambda: paths(namespace) == [])


def wait_for_no_links(namespace: LocalNamespace, path: str) -> None:
    eventually(
        lambda: namespace.call(
            lambda core: not core.outgoing_links.get(core.entities.get(path).queue.id)
        )
    )


def paths(namespace: LocalNamespace) -> list[str]:
    return namespace.call(lambda core: [entity.path for entity in core.entities.all()])
