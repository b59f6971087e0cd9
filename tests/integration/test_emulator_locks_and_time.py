"""Locks, time-to-live and idleness in a local namespace, with the sync and the async SDK."""

import asyncio
import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusAuthenticationError

from pairbus.amqp.client import Management, Receiver
from pairbus.amqp.performatives import Modified, Rejected, Released
from pairbus.emulator.namespace import LocalNamespace
from pairbus.errors import LockLost
from pairbus.servicebus.management import ABANDONED
from tests.integration.clocks import Clock
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    eventually,
    is_empty,
    take,
    take_one,
)

pytestmark = SDK_MARKS

SECOND = datetime.timedelta(seconds=1)
MINUTE = datetime.timedelta(minutes=1)
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter")


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


async def let_locks_expire(sdk: Flavour, queue: str) -> None:
    await eventually(
        lambda: sdk.namespace.call(lambda core: not core.entities.get(queue).queue._locks)
    )


class TestLocks:
    async def test_message_is_locked_for_the_lock_duration_of_the_queue(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=30 * SECOND)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x"))
        message = await take_one(receiver)
        assert message.locked_until_utc - message.enqueued_time_utc >= 30 * SECOND

    async def test_settling_after_the_lock_is_lost_is_refused(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=0.5 * SECOND)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(4)])
        messages = await take(receiver, 4)
        await let_locks_expire(sdk, queue)
        for message, settle in zip(messages, SETTLEMENTS, strict=True):
            with pytest.raises(MessageLockLostError):
                await getattr(receiver, f"{settle}_message")(message)
        assert sdk.runtime(queue).counts.active == 4
        again = await take(receiver, 4)
        assert [message.sequence_number for message in again] == [1, 2, 3, 4]
        assert {message.delivery_count for message in again} == {1}

    async def test_settlement_with_an_expired_lock_is_rejected_on_the_link(
        self, sdk: Flavour
    ) -> None:
        """Use our client, because the SDK checks the expiry of a lock by its own clock."""
        queue = sdk.queue(lock_duration=0.3 * SECOND)
        await sdk.sender(queue).send_messages(ServiceBusMessage("x"))
        receiver = Receiver(sdk.raw(), queue)
        for state in (None, Released(), Modified(undeliverable_here=True), Rejected()):
            deliveries = receiver.receive(1)
            await let_locks_expire(sdk, queue)
            with pytest.raises(LockLost) as refused:
                receiver.settle(deliveries, state)
            assert refused.value.condition == "com.microsoft:message-lock-lost"
            assert sdk.runtime(queue).counts.active == 1

    async def test_settlement_with_a_lost_lock_is_rejected_by_the_emulator(
        self, sdk: Flavour
    ) -> None:
        """By the SDK's clock the locks are valid, so it sends the settlement, which is refused."""
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue, prefetch_count=4)
        await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(4)])
        messages = await take(receiver, 4)
        management = Management(sdk.raw(), queue)
        management.settle([message.lock_token.bytes_le for message in messages[:2]])
        management.settle([message.lock_token.bytes_le for message in messages[2:]], ABANDONED)
        for message, settle in zip(messages, SETTLEMENTS, strict=True):
            with pytest.raises(MessageLockLostError) as refused:
                await getattr(receiver, f"{settle}_message")(message)
            assert "The lock supplied is invalid" in str(refused.value)
        assert sdk.runtime(queue).counts.active == 2
        assert sdk.runtime(queue).counts.dead_letter == 0

    async def test_settlement_with_an_expired_lock_does_not_affect_the_next_lock(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(lock_duration=SECOND)
        await sdk.sender(queue).send_messages(ServiceBusMessage("x"))
        client = sdk.raw()
        first, second = Receiver(client, queue), Receiver(client, queue)
        stale = first.receive(1)
        await let_locks_expire(sdk, queue)
        held = second.receive(1)
        with pytest.raises(LockLost):
            first.settle(stale)
        second.settle(held)
        assert sdk.stored_count(queue) == 0

    async def test_lost_locks_count_as_deliveries_up_to_the_maximum(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=0.2 * SECOND, max_delivery_count=2)
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue), sdk.dead_letters(queue)
        )
        await sender.send_messages(ServiceBusMessage("x"))
        assert [(await take_one(receiver)).delivery_count for _ in range(2)] == [0, 1]
        letter = await take_one(dead)
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert letter.delivery_count == 2

    async def test_renewed_lock_is_kept(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=3 * SECOND)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x"))
        message = await take_one(receiver)
        before = message.locked_until_utc
        while now() < before:  # often, so that a delay on a busy machine does no harm
            await asyncio.sleep(0.2)
            until = await receiver.renew_message_lock(message)
            assert until > before
            assert message.locked_until_utc == until
        await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_lost_lock_cannot_be_renewed(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=0.3 * SECOND)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x"))
        message = await take_one(receiver)
        await let_locks_expire(sdk, queue)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(message)

    async def test_sdk_renews_a_message_lock_automatically(self, sdk: Flavour) -> None:
        queue = sdk.queue(lock_duration=5 * SECOND)
        lost: list[ServiceBusReceivedMessage] = []
        renewer = sdk.lock_renewer(on_lock_renew_failure=lambda message, _: lost.append(message))
        async with sdk.awaitable(renewer):
            sender, receiver = await sdk.pair(queue)
            await sender.send_messages(ServiceBusMessage("x"))
            message = await take_one(receiver)
            end = message.locked_until_utc + SECOND
            renewer.register(sdk.native(receiver), message, max_lock_renewal_duration=30)
            await eventually(lambda: now() > end)
            assert lost == []  # later, a renewal may overtake the completion
            await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_sdk_renews_the_locks_of_many_messages_at_once(self, sdk: Flavour) -> None:
        """The sync SDK renews in threads, and so sends delivery ids out of order."""
        queue = sdk.queue(lock_duration=5 * SECOND)
        lost: list[ServiceBusReceivedMessage] = []
        renewer = sdk.lock_renewer(on_lock_renew_failure=lambda message, _: lost.append(message))
        async with sdk.awaitable(renewer):
            sender, receiver = await sdk.pair(queue)
            await sender.send_messages([ServiceBusMessage(f"{i}") for i in range(10)])
            messages = await take(receiver, 10)
            end = messages[-1].locked_until_utc + SECOND
            for message in messages:
                renewer.register(sdk.native(receiver), message, max_lock_renewal_duration=30)
            await eventually(lambda: now() > end)
            assert lost == []
            for message in messages:
                await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0


class TestTimeToLive:
    async def test_expired_message_is_dropped(self, sdk: Flavour) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(
            [
                ServiceBusMessage("short", time_to_live=SECOND),
                ServiceBusMessage("long", time_to_live=60 * SECOND),
            ]
        )
        await eventually(lambda: sdk.stored_count(queue) == 1)
        message = await take_one(receiver)
        assert str(message) == "long"
        assert message.expires_at_utc - message.enqueued_time_utc == 60 * SECOND

    async def test_expired_message_is_dead_lettered_if_the_queue_is_set_so(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(dead_lettering_on_message_expiration=True)
        sender, dead = await sdk.open(sdk.sender(queue), sdk.dead_letters(queue))
        await sender.send_messages(ServiceBusMessage("x", time_to_live=SECOND))
        letter = await take_one(dead)
        assert letter.dead_letter_reason == "TTLExpiredException"
        assert letter.dead_letter_source == queue
        assert sdk.runtime(queue).counts.active == 0

    async def test_default_time_to_live_of_the_queue_limits_all_messages(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(
            default_message_time_to_live=SECOND, dead_lettering_on_message_expiration=True
        )
        await sdk.sender(queue).send_messages(
            [ServiceBusMessage("x"), ServiceBusMessage("y", time_to_live=60 * SECOND)]
        )
        await eventually(lambda: sdk.runtime(queue).counts.dead_letter == 2)

    async def test_locked_message_can_be_completed_after_its_expiry(self, sdk: Flavour) -> None:
        queue = sdk.queue(dead_lettering_on_message_expiration=True)
        sender, receiver = await sdk.pair(queue)
        await sender.send_messages(ServiceBusMessage("x", time_to_live=2.5 * SECOND))
        message = await take_one(receiver)
        await eventually(lambda: now() > message.expires_at_utc + 0.2 * SECOND)
        await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_time_to_live_of_a_scheduled_message_starts_when_it_is_due(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue()
        sender, receiver = await sdk.pair(queue)
        later = ServiceBusMessage("x", time_to_live=2.5 * SECOND)
        await sender.schedule_messages(later, now() + 3 * SECOND)
        assert str(await take_one(receiver)) == "x"


class TestIdleness:
    async def test_idle_entity_is_deleted(self, own_sdk: Flavour, clock: Clock) -> None:
        namespace = own_sdk.namespace
        namespace.create_queue("kept")
        namespace.create_queue("idle", auto_delete_on_idle=5 * MINUTE)
        namespace.create_topic("news", auto_delete_on_idle=20 * MINUTE)
        namespace.create_subscription("news", "idle", auto_delete_on_idle=5 * MINUTE)
        namespace.create_subscription("news", "kept")
        assert len(paths(namespace)) == 5
        clock.ahead = 6 * 60
        await eventually(lambda: paths(namespace) == ["kept", "news", "news/Subscriptions/kept"])
        with pytest.raises(ServiceBusAuthenticationError):
            await own_sdk.sender("idle").send_messages(ServiceBusMessage("x"))
        clock.ahead = 21 * 60
        await eventually(lambda: paths(namespace) == ["kept"])

    async def test_entity_in_use_is_kept(self, own_sdk: Flavour, clock: Clock) -> None:
        namespace = own_sdk.namespace
        for name in ("received", "sent", "idle"):
            namespace.create_queue(name, auto_delete_on_idle=5 * MINUTE)
        (receiver,) = await own_sdk.open(own_sdk.receiver("received"))
        assert await is_empty(receiver)
        clock.ahead = 4 * 60
        async with own_sdk.sender("sent") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        clock.ahead = 8 * 60
        await eventually(lambda: paths(namespace) == ["received", "sent"])
        await receiver.close()
        await eventually(lambda: not has_receivers(namespace, "received"))
        clock.ahead = 12 * 60
        await eventually(lambda: paths(namespace) == ["received"])
        clock.ahead = 14 * 60
        await eventually(lambda: paths(namespace) == [])

    async def test_time_of_last_access_survives_a_restart(
        self, own_sdk: Flavour, clock: Clock
    ) -> None:
        namespace = own_sdk.namespace
        namespace.create_queue("q", auto_delete_on_idle=5 * MINUTE)
        clock.ahead = 4 * 60
        async with own_sdk.sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        await asyncio.to_thread(namespace.stop)
        clock.ahead = 8 * 60
        await asyncio.to_thread(namespace.start)
        namespace.call(lambda core: core.tick())
        assert paths(namespace) == ["q"]
        clock.ahead = 10 * 60
        await eventually(lambda: paths(namespace) == [])


def has_receivers(namespace: LocalNamespace, path: str) -> bool:
    return namespace.call(
        lambda core: bool(core.outgoing_links.get(core.entities.get(path).queue.id))
    )


def paths(namespace: LocalNamespace) -> list[str]:
    return namespace.call(lambda core: [entity.path for entity in core.entities.all()])
