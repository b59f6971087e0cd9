"""Sessions of a local namespace, with the azure-servicebus SDK over real sockets."""

import datetime
import time

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.integration.emulator_fixtures import (
    Bench,
    bench,
    bodies,
    eventually,
    is_empty,
    module_bench,
    take,
    take_one,
)

__all__ = ["bench", "module_bench"]

# The SDK does not close its socket when a connection fails.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SECOND = datetime.timedelta(seconds=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def sent(body: str, session: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session)


def is_free(bench: Bench, queue: str, session: str) -> bool:
    """Return True if no receiver has the session."""
    return bench.namespace.call(
        lambda core: session not in core.entities.get(queue).queue.sessions._locks
    )


class TestReceiving:
    def test_receiver_gets_the_messages_of_its_session_in_order(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, a, b = bench.open(
            bench.sender(queue),
            bench.receiver(queue, session_id="a"),
            bench.receiver(queue, session_id="b"),
        )
        sender.send_messages([sent(f"{name}{i}", name) for i in range(3) for name in "ab"])
        for receiver, name in ((a, "a"), (b, "b")):
            messages = take(receiver, 3)
            assert bodies(messages) == [f"{name}{i}" for i in range(3)]
            assert {message.session_id for message in messages} == {name}
            assert receiver.session.session_id == name
            for message in messages:
                receiver.complete_message(message)
        assert bench.held(queue) == 0

    def test_message_without_a_session_is_refused_if_the_queue_requires_sessions(
        self, bench: Bench
    ) -> None:
        queue = bench.queue(requires_session=True)
        sender = bench.sender(queue)
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(ServiceBusError):
            sender.send_messages([sent("y", "s"), ServiceBusMessage("x")])
        assert bench.held(queue) == 0

    def test_session_receiver_is_required_if_the_queue_requires_sessions_and_only_then(
        self, bench: Bench
    ) -> None:
        queue, plain = bench.queue(requires_session=True), bench.queue()
        with pytest.raises(ServiceBusError):
            bench.receiver(queue).receive_messages(1, max_wait_time=1)
        with pytest.raises(ServiceBusError):
            bench.receiver(plain, session_id="s").receive_messages(1, max_wait_time=1)

    def test_receive_and_delete_removes_messages_at_once(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, receiver = bench.pair(
            queue, session_id="s", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        sender.send_messages([sent("a", "s"), sent("b", "other")])
        assert bodies(take(receiver)) == ["a"]
        assert bench.held(queue) == 1

    def test_abandoned_deferred_and_dead_lettered_messages_stay_in_their_session(
        self, bench: Bench
    ) -> None:
        queue = bench.queue(requires_session=True)
        sender, receiver, dead = bench.open(
            bench.sender(queue), bench.receiver(queue, session_id="s"), bench.dead_letters(queue)
        )
        sender.send_messages([sent("a", "s"), sent("b", "s")])
        receiver.abandon_message(take_one(receiver))
        first, second = take(receiver, 2)
        assert (str(first), first.delivery_count) == ("a", 1)
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="why not")
        assert is_empty(receiver)
        (again,) = receiver.receive_deferred_messages(first.sequence_number)
        assert str(again) == "a"
        receiver.complete_message(again)
        letter = take_one(dead)
        assert (letter.session_id, letter.dead_letter_reason) == ("s", "why not")

    def test_peek_shows_only_messages_of_the_session(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, receiver = bench.pair(queue, session_id="s")
        sender.send_messages([sent("a", "s"), sent("b", "other"), sent("c", "s")])
        assert bodies(receiver.peek_messages(10)) == ["a", "c"]

    def test_scheduled_message_is_delivered_to_its_session(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, receiver = bench.pair(queue, session_id="s")
        due = now() + 0.5 * SECOND
        sender.schedule_messages(sent("later", "s"), due)
        message = take_one(receiver)
        assert str(message) == "later"
        assert now() >= message.scheduled_enqueue_time_utc


class TestTheNextSession:
    def test_each_receiver_gets_a_session_with_messages(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        opening = [
            bench.beside(bench.receiver(queue, session_id=NEXT_AVAILABLE_SESSION).__enter__)
            for _ in range(2)
        ]
        bench.sender(queue).send_messages([sent("1", "a"), sent("2", "b")])
        receivers = [item.result() for item in opening]
        assert sorted(item.session.session_id for item in receivers) == ["a", "b"]
        assert sorted(str(take_one(item)) for item in receivers) == ["1", "2"]

    def test_receiver_waits_until_a_session_is_available(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, _ = bench.open(bench.sender(queue), bench.receiver(queue, session_id="mine"))
        waiting = bench.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
        opened = bench.beside(waiting.__enter__)
        eventually(lambda: len(outlets(bench, queue)) == 2)
        sender.send_messages([sent("no", "mine"), sent("yes", "new")])
        assert opened.result().session.session_id == "new"
        assert str(take_one(waiting)) == "yes"

    def test_waiting_for_a_session_times_out(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        receiver = bench.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
        with pytest.raises(OperationTimeoutError):
            receiver.receive_messages(1, max_wait_time=1)
        assert outlets(bench, queue) == []


def outlets(bench: Bench, queue: str) -> list[object]:
    return bench.namespace.call(
        lambda core: list(core.outgoing_links.get(core.entities.get(queue).queue.id, []))
    )


class TestLocks:
    def test_session_has_one_receiver_until_it_is_released(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, holder = bench.pair(queue, session_id="s")
        sender.send_messages(sent("x", "s"))
        message = take_one(holder)
        with pytest.raises(SessionCannotBeLockedError):
            bench.receiver(queue, session_id="s").receive_messages(1, max_wait_time=20)
        holder.close()
        next_one = bench.receiver(queue, session_id="s")
        again = take_one(next_one)
        assert again.sequence_number == message.sequence_number
        assert again.delivery_count == 0
        next_one.complete_message(again)
        assert bench.held(queue) == 0

    def test_lock_that_is_not_renewed_is_lost(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True, lock_duration=2.5 * SECOND)
        bench.sender(queue).send_messages(sent("x", "s"))
        receiver = bench.receiver(queue, session_id="s")
        message = take_one(receiver)
        eventually(lambda: is_free(bench, queue, "s"))
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
        with pytest.raises(SessionLockLostError):
            receiver.session.set_state(b"late")
        assert bench.held(queue) == 1
        again = take_one(bench.receiver(queue, session_id="s"))
        assert again.delivery_count == 1

    def test_renewed_lock_is_kept(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True, lock_duration=3 * SECOND)
        sender, receiver = bench.pair(queue, session_id="s")
        sender.send_messages(sent("x", "s"))
        message = take_one(receiver)
        before = receiver.session.locked_until_utc
        while now() < before:  # often, so that a delay on a busy machine does no harm
            time.sleep(0.2)
            until = receiver.session.renew_lock()
            assert until > before
            assert receiver.session.locked_until_utc == until
        receiver.complete_message(message)
        assert bench.held(queue) == 0

    def test_sdk_renews_a_session_lock_automatically(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True, lock_duration=4 * SECOND)
        with AutoLockRenewer(max_lock_renewal_duration=30) as renewer:
            sender, receiver = bench.pair(queue, session_id="s", auto_lock_renewer=renewer)
            sender.send_messages(sent("x", "s"))
            message = take_one(receiver)
            end = receiver.session.locked_until_utc + 0.2 * SECOND
            eventually(lambda: now() > end)
            receiver.complete_message(message)
        assert bench.held(queue) == 0


class TestState:
    def test_session_state_survives_its_receiver(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        (receiver,) = bench.open(bench.receiver(queue, session_id="s"))
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"\x00half done")
        assert receiver.session.get_state() == b"\x00half done"
        receiver.close()
        (receiver,) = bench.open(bench.receiver(queue, session_id="s"))
        assert receiver.session.get_state() == b"\x00half done"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None

    def test_sessions_with_messages_or_state_are_listed(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        assert list(bench.client.list_queue_sessions(queue)) == []
        sender, receiver = bench.pair(queue, session_id="state")
        sender.send_messages([sent("x", f"s{i:03}") for i in range(150)])
        receiver.session.set_state(b"x")
        listed = list(bench.client.list_queue_sessions(queue))
        assert sorted(listed) == [*(f"s{i:03}" for i in range(150)), "state"]

    def test_sessions_are_listed_by_the_time_their_state_was_set(self, bench: Bench) -> None:
        queue = bench.queue(requires_session=True)
        sender, old, new = bench.open(
            bench.sender(queue),
            bench.receiver(queue, session_id="old"),
            bench.receiver(queue, session_id="new"),
        )
        sender.send_messages(sent("x", "message"))
        old.session.set_state(b"x")
        between = now()
        eventually(lambda: now() > between + 0.01 * SECOND)
        new.session.set_state(b"x")
        listed = bench.client.list_queue_sessions(queue, state_updated_after=between)
        assert list(listed) == ["new"]
