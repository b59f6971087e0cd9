"""Sessions of a local namespace, with the sync and the async SDK over real sockets."""

import asyncio
import datetime

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from pairbus.emulator.runtime import NamespaceRuntime
from tests.integration.clocks import Clock
from tests.integration.sdk_flavours import (
    SDK_MARKS,
    Flavour,
    bodies,
    eventually,
    is_empty,
    listed,
    take,
    take_one,
)
from tests.waiting import DEADLINE_S

pytestmark = SDK_MARKS

SECOND = datetime.timedelta(seconds=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def sent(body: str, session: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session)


def is_free(sdk: Flavour, queue: str, session: str) -> bool:
    """Return True if no receiver has the session."""
    return sdk.namespace.call(
        lambda core: session not in core.entities.get(queue).queue.sessions._locks
    )


class TestReceiving:
    async def test_receiver_gets_the_messages_of_its_session_in_order(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, a, b = await sdk.open(
            sdk.sender(queue),
            sdk.receiver(queue, session_id="a"),
            sdk.receiver(queue, session_id="b"),
        )
        await sender.send_messages([sent(f"{name}{i}", name) for i in range(3) for name in "ab"])
        for receiver, name in ((a, "a"), (b, "b")):
            messages = await take(receiver, 3)
            assert bodies(messages) == [f"{name}{i}" for i in range(3)]
            assert {message.session_id for message in messages} == {name}
            assert receiver.session.session_id == name
            for message in messages:
                await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_message_without_a_session_is_refused_if_the_queue_requires_sessions(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(requires_session=True)
        sender = sdk.sender(queue)
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError):
            await sender.send_messages([sent("y", "s"), ServiceBusMessage("x")])
        assert sdk.stored_count(queue) == 0

    async def test_session_receiver_is_required_if_the_queue_requires_sessions_and_only_then(
        self, sdk: Flavour
    ) -> None:
        queue, plain = sdk.queue(requires_session=True), sdk.queue()
        with pytest.raises(ServiceBusError):
            await sdk.receiver(queue).receive_messages(1, max_wait_time=1)
        with pytest.raises(ServiceBusError):
            await sdk.receiver(plain, session_id="s").receive_messages(1, max_wait_time=1)

    async def test_receive_and_delete_removes_messages_at_once(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, receiver = await sdk.pair(
            queue, session_id="s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        await sender.send_messages([sent("a", "s"), sent("b", "other")])
        assert bodies(await take(receiver)) == ["a"]
        assert sdk.stored_count(queue) == 1

    async def test_abandoned_deferred_and_dead_lettered_messages_stay_in_their_session(
        self, sdk: Flavour
    ) -> None:
        queue = sdk.queue(requires_session=True)
        sender, receiver, dead = await sdk.open(
            sdk.sender(queue), sdk.receiver(queue, session_id="s"), sdk.dead_letters(queue)
        )
        await sender.send_messages([sent("a", "s"), sent("b", "s")])
        await receiver.abandon_message(await take_one(receiver))
        first, second = await take(receiver, 2)
        assert (str(first), first.delivery_count) == ("a", 1)
        await receiver.defer_message(first)
        await receiver.dead_letter_message(second, reason="why not")
        assert await is_empty(receiver)
        (again,) = await receiver.receive_deferred_messages(first.sequence_number)
        assert str(again) == "a"
        await receiver.complete_message(again)
        letter = await take_one(dead)
        assert (letter.session_id, letter.dead_letter_reason) == ("s", "why not")

    async def test_peek_shows_only_messages_of_the_session(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, receiver = await sdk.pair(queue, session_id="s")
        await sender.send_messages([sent("a", "s"), sent("b", "other"), sent("c", "s")])
        assert bodies(await receiver.peek_messages(10)) == ["a", "c"]

    async def test_scheduled_message_is_delivered_to_its_session(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, receiver = await sdk.pair(queue, session_id="s")
        due = now() + 0.5 * SECOND
        await sender.schedule_messages(sent("later", "s"), due)
        message = await take_one(receiver)
        assert str(message) == "later"
        assert now() >= message.scheduled_enqueue_time_utc


class TestTheNextSession:
    async def test_each_receiver_gets_a_session_with_messages(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        opening = [
            asyncio.ensure_future(
                sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION).__aenter__()
            )
            for _ in range(2)
        ]
        await sdk.sender(queue).send_messages([sent("1", "a"), sent("2", "b")])
        receivers = await asyncio.gather(*opening)
        assert sorted(item.session.session_id for item in receivers) == ["a", "b"]
        assert sorted([str(await take_one(item)) for item in receivers]) == ["1", "2"]

    async def test_receiver_waits_until_a_session_is_available(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, _ = await sdk.open(sdk.sender(queue), sdk.receiver(queue, session_id="mine"))
        waiting = sdk.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
        opened = asyncio.ensure_future(waiting.__aenter__())
        await eventually(lambda: len(outgoing_links_of(sdk, queue)) == 2)
        await sender.send_messages([sent("no", "mine"), sent("yes", "new")])
        await opened
        assert waiting.session.session_id == "new"
        assert str(await take_one(waiting)) == "yes"

    async def test_waiting_for_a_session_times_out(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        next_session = {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": 1}
        with pytest.raises(OperationTimeoutError):
            await sdk.open(sdk.receiver(queue, **next_session))
        assert outgoing_links_of(sdk, queue) == []
        with pytest.raises(OperationTimeoutError):
            await sdk.receiver(queue, **next_session).receive_messages(1, max_wait_time=1)


def outgoing_links_of(sdk: Flavour, queue: str) -> list[object]:
    return sdk.namespace.call(
        lambda core: list(core.outgoing_links.get(core.entities.get(queue).queue.id, []))
    )


class TestLocks:
    async def test_session_has_one_receiver_until_it_is_released(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, holder = await sdk.pair(queue, session_id="s")
        await sender.send_messages(sent("x", "s"))
        message = await take_one(holder)
        with pytest.raises(SessionCannotBeLockedError):
            await sdk.receiver(queue, session_id="s").receive_messages(1, max_wait_time=20)
        await holder.close()
        next_one = sdk.receiver(queue, session_id="s")
        again = await take_one(next_one)
        assert again.sequence_number == message.sequence_number
        assert again.delivery_count == 0
        await next_one.complete_message(again)
        assert sdk.stored_count(queue) == 0

    async def test_lock_that_is_not_renewed_is_lost(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True, lock_duration=2.5 * SECOND)
        await sdk.sender(queue).send_messages(sent("x", "s"))
        receiver = sdk.receiver(queue, session_id="s")
        message = await take_one(receiver)
        await eventually(lambda: is_free(sdk, queue, "s"))
        for late in (
            receiver.complete_message(message),
            receiver.session.set_state(b"late"),
            receiver.session.renew_lock(),
        ):
            with pytest.raises(SessionLockLostError):
                await late
        assert sdk.stored_count(queue) == 1
        again = await take_one(sdk.receiver(queue, session_id="s"))
        assert again.delivery_count == 1

    async def test_lock_is_kept_while_the_receiver_waits_for_messages(
        self, own_sdk: Flavour, clock: Clock
    ) -> None:
        queue = own_sdk.queue(requires_session=True, lock_duration=60 * SECOND)

        def locked_until(core: NamespaceRuntime) -> int:
            return core.entities.get(queue).queue.sessions.locked_until("s")

        (receiver,) = await own_sdk.open(own_sdk.receiver(queue, session_id="s"))
        waiting = asyncio.ensure_future(receiver.receive_messages(1, max_wait_time=DEADLINE_S))
        for _ in range(2):
            until_ms = own_sdk.namespace.call(locked_until)
            clock.ahead += 40
            await eventually(lambda until=until_ms: own_sdk.namespace.call(locked_until) > until)
        await own_sdk.sender(queue).send_messages(sent("x", "s"))
        assert bodies(await waiting) == ["x"]

    async def test_renewed_lock_is_kept(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True, lock_duration=3 * SECOND)
        sender, receiver = await sdk.pair(queue, session_id="s")
        await sender.send_messages(sent("x", "s"))
        message = await take_one(receiver)
        before = receiver.session.locked_until_utc
        while now() < before:  # often, so that a delay on a busy machine does no harm
            await asyncio.sleep(0.2)
            until = await receiver.session.renew_lock()
            assert until > before
            assert receiver.session.locked_until_utc == until
        await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0

    async def test_sdk_renews_a_session_lock_automatically(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True, lock_duration=4 * SECOND)
        renewer = sdk.lock_renewer(max_lock_renewal_duration=30)
        async with sdk.awaitable(renewer):
            sender, receiver = await sdk.pair(queue, session_id="s", auto_lock_renewer=renewer)
            await sender.send_messages(sent("x", "s"))
            message = await take_one(receiver)
            end = receiver.session.locked_until_utc + 0.2 * SECOND
            await eventually(lambda: now() > end)
            await receiver.complete_message(message)
        assert sdk.stored_count(queue) == 0


class TestState:
    async def test_session_state_survives_its_receiver(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        (receiver,) = await sdk.open(sdk.receiver(queue, session_id="s"))
        assert await receiver.session.get_state() is None
        await receiver.session.set_state(b"\x00half done")
        assert await receiver.session.get_state() == b"\x00half done"
        await receiver.close()
        (receiver,) = await sdk.open(sdk.receiver(queue, session_id="s"))
        assert await receiver.session.get_state() == b"\x00half done"
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None

    async def test_sessions_with_messages_or_state_are_listed(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        assert await listed(sdk.client.list_queue_sessions(queue)) == []
        sender, receiver = await sdk.pair(queue, session_id="state")
        await sender.send_messages([sent("x", f"s{i:03}") for i in range(150)])
        await receiver.session.set_state(b"x")
        sessions = await listed(sdk.client.list_queue_sessions(queue))
        assert sorted(sessions) == [*(f"s{i:03}" for i in range(150)), "state"]

    async def test_sessions_are_listed_by_the_time_their_state_was_set(self, sdk: Flavour) -> None:
        queue = sdk.queue(requires_session=True)
        sender, old, new = await sdk.open(
            sdk.sender(queue),
            sdk.receiver(queue, session_id="old"),
            sdk.receiver(queue, session_id="new"),
        )
        await sender.send_messages(sent("x", "message"))
        await old.session.set_state(b"x")
        between = now()
        await eventually(lambda: now() > between + 0.01 * SECOND)
        await new.session.set_state(b"x")
        updated = sdk.client.list_queue_sessions(queue, state_updated_after=between)
        assert await listed(updated) == ["new"]
