"""The async SDK against a local namespace, in detail: locks, time, limits, sessions, topics, pings,
rights and TLS, as in the sync tests. A few further cases run with both SDKs.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    SessionLockLostError,
)

from pairbus.amqp.client import Client, ClientOptions, Management
from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.emulator.entities.descriptions import EntityStatus
from pairbus.emulator.runtime import NamespaceRuntime
from pairbus.errors import LinkLost
from pairbus.servicebus.connection_strings import ConnectionString
from pairbus.servicebus.tokens import sign_token
from tests.integration.emulator_bench import QUICK
from tests.integration.emulator_flavours import (
    Flavour,
    aio,
    benches,
    bodies,
    both,
    eventually,
    is_empty,
    listed,
    namespace,
    take,
    take_one,
)
from tests.interop.tls import TlsFiles

__all__ = ["aio", "benches", "both", "namespace"]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # The SDK does not close its transport when a connection fails.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:loop is closed:ResourceWarning"),
]

SECOND = timedelta(seconds=1)
SETTLEMENTS = ("complete", "abandon", "defer", "dead_letter")


def now() -> datetime:
    return datetime.now(UTC)


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"{number}") for number in range(count)]


def sent(body: str, session: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session)


def unlocked(bench: Flavour, queue: str) -> bool:
    return bench.namespace.call(lambda core: not core.entities.get(queue).queue._locks)


class TestLocks:
    async def test_settling_after_the_lock_is_lost_is_refused(self, aio: Flavour) -> None:
        queue = aio.queue(lock_duration=0.5 * SECOND)
        sender, receiver = await aio.pair(queue, prefetch_count=4)
        await sender.send_messages(numbered(4))
        messages = await take(receiver, 4)
        await eventually(lambda: unlocked(aio, queue))
        for message, settle in zip(messages, SETTLEMENTS, strict=True):
            with pytest.raises(MessageLockLostError):
                await getattr(receiver, f"{settle}_message")(message)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(messages[0])
        assert aio.runtime(queue).counts.active == 4

    async def test_settlement_with_an_expired_lock_is_rejected_by_the_emulator(
        self, both: Flavour
    ) -> None:
        """By the SDK's clock the locks are valid, so it sends the settlement, which is refused."""
        queue = both.queue()
        sender, receiver = await both.pair(queue, prefetch_count=4)
        await sender.send_messages(numbered(4))
        messages = await take(receiver, 4)
        options = ClientOptions.from_connection_string(both.namespace.connection_string)
        with Client(options) as client:
            Management(client, queue).settle([one.lock_token for one in messages[:2]])
            Management(client, queue).settle([one.lock_token for one in messages[2:]], "abandoned")
        for message, settle in zip(messages, SETTLEMENTS, strict=True):
            with pytest.raises(MessageLockLostError) as refused:
                await getattr(receiver, f"{settle}_message")(message)
            assert "The lock supplied is invalid" in str(refused.value)
        assert both.runtime(queue).counts.active == 2
        assert both.runtime(queue).counts.dead_letter == 0

    async def test_message_and_session_locks_are_renewed_by_calls_and_by_the_sdk(
        self, aio: Flavour
    ) -> None:
        lock = 4 * SECOND  # the SDK checks once a second
        queue, of_sessions = (
            aio.queue(lock_duration=lock),
            aio.queue(lock_duration=lock, requires_session=True),
        )
        async with AutoLockRenewer(max_lock_renewal_duration=30) as renewer:
            sender, receiver, other, of_session = await aio.open(
                aio.sender(queue),
                aio.receiver(queue),
                aio.sender(of_sessions),
                aio.receiver(of_sessions, session_id="s", auto_lock_renewer=renewer),
            )
            await sender.send_messages(ServiceBusMessage("x"))
            await other.send_messages(sent("x", "s"))
            message, in_session = await take_one(receiver), await take_one(of_session)
            assert await receiver.renew_message_lock(message) == message.locked_until_utc
            until = await of_session.session.renew_lock()
            assert until == of_session.session.locked_until_utc
            renewer.register(receiver, message)
            await eventually(lambda: now() > until + 0.2 * SECOND)
            await receiver.complete_message(message)
            await of_session.complete_message(in_session)
        assert aio.held(queue) == aio.held(of_sessions) == 0

    async def test_lost_locks_count_as_deliveries_up_to_the_maximum(self, aio: Flavour) -> None:
        queue = aio.queue(lock_duration=0.2 * SECOND, max_delivery_count=2)
        sender, receiver, dead = await aio.open(
            aio.sender(queue), aio.receiver(queue), aio.dead_letters(queue)
        )
        await sender.send_messages(ServiceBusMessage("x"))
        assert [(await take_one(receiver)).delivery_count for _ in range(2)] == [0, 1]
        letter = await take_one(dead)
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert letter.delivery_count == 2

    async def test_sdk_settles_over_the_management_link_after_its_link_is_detached(
        self, both: Flavour
    ) -> None:
        """The SDK does not settle on a link that it knows to be lost: each message has its own."""
        queue = both.queue()
        sender, dead, *receivers = await both.open(
            both.sender(queue),
            both.dead_letters(queue),
            *(both.receiver(queue, prefetch_count=0) for _ in SETTLEMENTS),
        )
        await sender.send_messages(numbered(4))
        messages = [await take_one(receiver) for receiver in receivers]
        both.namespace.call(lambda core: detach_all(core, queue))
        settled = {}
        for settle, receiver, message in zip(SETTLEMENTS, receivers, messages, strict=True):
            options = {"reason": "r", "error_description": "d"} if settle == "dead_letter" else {}
            await getattr(receiver, f"{settle}_message")(message, **options)
            settled[settle] = str(message)
        letter = await take_one(dead)
        assert str(letter) == settled["dead_letter"]
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("r", "d")
        peeking = both.receiver(queue, prefetch_count=0)
        assert {str(one): one.state for one in await peeking.peek_messages(9)} == {
            settled["abandon"]: ServiceBusMessageState.ACTIVE,
            settled["defer"]: ServiceBusMessageState.DEFERRED,
        }


def detach_all(core: NamespaceRuntime, queue: str) -> None:
    """Detach the links of all receivers of a queue."""
    for outlet in core.outgoing_links.pop(core.entities.get(queue).queue.id):
        outlet._detach(LinkLost("The link was taken away."))


class TestTime:
    async def test_expired_message_is_dead_lettered_or_dropped(self, aio: Flavour) -> None:
        results = aio.queue(dead_lettering_on_message_expiration=True)
        silent = aio.queue(default_message_time_to_live=SECOND)
        to_told, to_silent, dead = await aio.open(
            aio.sender(results), aio.sender(silent), aio.dead_letters(results)
        )
        await to_told.send_messages(ServiceBusMessage("x", time_to_live=SECOND))
        await to_silent.send_messages(ServiceBusMessage("x"))
        letter = await take_one(dead)
        assert (letter.dead_letter_reason, letter.dead_letter_source) == (
            "TTLExpiredException",
            results,
        )
        await eventually(lambda: aio.held(silent) == 0)

    async def test_scheduled_message_is_delivered_when_due_and_a_cancelled_one_never(
        self, aio: Flavour
    ) -> None:
        queue = aio.queue()
        sender, receiver = await aio.pair(queue)
        due = now() + 2 * SECOND
        first, _ = await sender.schedule_messages(numbered(2), due)
        await sender.cancel_scheduled_messages(first)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(first)
        assert aio.runtime(queue).counts.scheduled == 1
        message = await take_one(receiver)
        assert str(message) == "1"
        assert message.enqueued_time_utc >= message.scheduled_enqueue_time_utc

    async def test_deferred_message_is_received_only_by_its_sequence_number(
        self, aio: Flavour
    ) -> None:
        queue = aio.queue()
        sender, receiver, deleting = await aio.open(
            aio.sender(queue),
            aio.receiver(queue, prefetch_count=2),
            aio.receiver(
                queue, prefetch_count=0, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ),
        )
        await sender.send_messages(numbered(2))
        numbers = []
        for message in await take(receiver, 2):
            await receiver.defer_message(message)
            numbers.append(message.sequence_number)
        assert await is_empty(receiver)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([*numbers, 99])
        first, second = await receiver.receive_deferred_messages(numbers)
        await receiver.abandon_message(first)
        await receiver.dead_letter_message(second)
        (again,) = await deleting.receive_deferred_messages(numbers[0])
        assert (str(again), again.delivery_count) == ("0", 2)
        assert aio.runtime(queue).counts.dead_letter == aio.held(queue) == 1

    async def test_idle_entity_is_deleted(self, aio: Flavour) -> None:
        queue = aio.queue(auto_delete_on_idle=timedelta(minutes=5))
        later = aio.namespace.call(lambda core: core.now_ms()) + 6 * 60 * 1000
        aio.namespace.call(lambda core: core.entities.tick(later))
        with pytest.raises(MessagingEntityNotFoundError):
            await aio.sender(queue).send_messages(ServiceBusMessage("x"))


class TestLimits:
    async def test_duplicate_is_accepted_and_dropped(self, aio: Flavour) -> None:
        queue = aio.queue(requires_duplicate_detection=True)
        sender = aio.sender(queue)
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("x", message_id="same"))
        await sender.send_messages([ServiceBusMessage("x", message_id=one) for one in "aab"])
        assert aio.held(queue) == 3

    async def test_too_large_message_and_full_queue_are_refused(self, aio: Flavour) -> None:
        queue = aio.queue(max_size_in_megabytes=1, max_message_size_in_kilobytes=300)
        sender, receiver = await aio.pair(queue)
        assert (await sender.create_message_batch()).max_size_in_bytes == 300 * 1024
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 301 * 1024))
        large = ServiceBusMessage(b"x" * 250 * 1024)
        for _ in range(4):
            await sender.send_messages(large)
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(large)
        assert aio.held(queue) == 4
        await receiver.complete_message(await take_one(receiver))
        await sender.send_messages(large)

    async def test_disabling_an_entity_applies_to_existing_and_new_links(
        self, aio: Flavour
    ) -> None:
        queue = aio.queue()
        sender, receiver = await aio.pair(queue)
        aio.update(queue, status=EntityStatus.RECEIVE_DISABLED)
        await sender.send_messages(ServiceBusMessage("x"))
        for one in (receiver, aio.receiver(queue)):
            with pytest.raises(MessagingEntityDisabledError):
                await one.receive_messages(1, max_wait_time=5)
        aio.update(queue, status=EntityStatus.SEND_DISABLED)
        for one in (sender, aio.sender(queue)):
            with pytest.raises(MessagingEntityDisabledError):
                await one.send_messages(ServiceBusMessage("x"))
        assert aio.held(queue) == 1
        aio.update(queue, status=EntityStatus.DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("x"))
        with pytest.raises(MessagingEntityDisabledError):
            await aio.receiver(queue).receive_messages(1, max_wait_time=5)

    async def test_receiver_that_found_nothing_gets_later_messages(self, aio: Flavour) -> None:
        """Without prefetch, each call grants credit and drains it."""
        queue = aio.queue()
        sender, receiver = await aio.pair(queue, prefetch_count=0)
        assert await is_empty(receiver)
        assert await is_empty(receiver)
        waiting = asyncio.ensure_future(receiver.receive_messages(5, max_wait_time=20))
        await sender.send_messages(ServiceBusMessage("late"))
        (message,) = await waiting
        await receiver.complete_message(message)
        await sender.send_messages(numbered(5))
        assert bodies(await take(receiver, 5)) == ["0", "1", "2", "3", "4"]
        assert aio.held(queue) == 5

    async def test_peek_shows_messages_of_every_state(self, aio: Flavour) -> None:
        queue = aio.queue()
        sender, receiver = await aio.pair(queue)
        await sender.send_messages(numbered(2))
        await sender.schedule_messages(ServiceBusMessage("later"), now() + 3600 * SECOND)
        await receiver.defer_message(await take_one(receiver))
        peeked = await receiver.peek_messages(10, sequence_number=1)
        assert [(str(one), one.state) for one in peeked] == [
            ("0", ServiceBusMessageState.DEFERRED),
            ("1", ServiceBusMessageState.ACTIVE),
            ("later", ServiceBusMessageState.SCHEDULED),
        ]

    @pytest.mark.rule("G3")
    async def test_ping_is_accepted_and_metered_but_not_stored(self, aio: Flavour) -> None:
        queue = aio.queue()
        sender, receiver = await aio.pair(queue)
        ping = ServiceBusMessage(b"", content_type="application/vnd.ms-servicebus-ping")
        await sender.send_messages(ping)
        await sender.send_messages([ServiceBusMessage("real"), ping])
        assert aio.namespace.meter()[queue, "send"].messages == 3
        assert aio.held(queue) == 1
        assert bodies(await receiver.peek_messages(5)) == ["real"]


class TestSessions:
    async def test_redelivered_messages_stay_in_their_session(self, aio: Flavour) -> None:
        queue = aio.queue(requires_session=True)
        sender, receiver, dead = await aio.open(
            aio.sender(queue),
            aio.receiver(queue, session_id="s", prefetch_count=2),
            aio.dead_letters(queue),
        )
        await sender.send_messages([sent("a", "s"), sent("other", "o"), sent("b", "s")])
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage("has none"))
        assert bodies(await receiver.peek_messages(9)) == ["a", "b"]
        first, second = await take(receiver, 2)
        await receiver.abandon_message(first)
        await receiver.dead_letter_message(second, reason="why not")
        again = await take_one(receiver)
        assert (str(again), again.delivery_count) == ("a", 1)
        await receiver.defer_message(again)
        (deferred,) = await receiver.receive_deferred_messages(again.sequence_number)
        await receiver.complete_message(deferred)
        letter = await take_one(dead)
        assert (letter.session_id, letter.dead_letter_reason) == ("s", "why not")

    async def test_lock_that_is_not_renewed_is_lost(self, aio: Flavour) -> None:
        queue = aio.queue(requires_session=True, lock_duration=2.5 * SECOND)
        await aio.sender(queue).send_messages(sent("x", "s"))
        receiver = aio.receiver(queue, session_id="s")
        message = await take_one(receiver)
        await eventually(lambda: unlocked(aio, queue))
        for late in (
            receiver.complete_message(message),
            receiver.session.set_state(b"late"),
            receiver.session.renew_lock(),
        ):
            with pytest.raises(SessionLockLostError):
                await late
        again = await take_one(aio.receiver(queue, session_id="s"))
        assert again.delivery_count == 1

    async def test_receiver_waits_for_the_next_session_and_sessions_are_listed(
        self, aio: Flavour
    ) -> None:
        queue = aio.queue(requires_session=True)
        waiting = aio.receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20)
        opened = asyncio.ensure_future(waiting.__aenter__())
        sender = aio.sender(queue)
        await sender.send_messages([sent("x", "b"), sent("y", "a")])
        await opened
        assert waiting.session.session_id == "b"
        assert str(await take_one(waiting)) == "x"
        before = now()
        await asyncio.sleep(0.01)
        await waiting.session.set_state(b"x")
        assert sorted(await listed(aio.client.list_queue_sessions(queue))) == ["a", "b"]
        updated = aio.client.list_queue_sessions(queue, state_updated_after=before)
        assert await listed(updated) == ["b"]


class TestTopics:
    async def test_subscription_has_its_own_sessions_and_sub_queues(self, aio: Flavour) -> None:
        topic = aio.topic()
        aio.namespace.create_subscription(topic, "plain")
        aio.namespace.create_subscription(topic, "sessions", requires_session=True)
        sender, plain, dead = await aio.open(
            aio.topic_sender(topic), aio.receiver(topic, "plain"), aio.dead_letters(topic, "plain")
        )
        await sender.send_messages(sent("x", "s"))
        await plain.dead_letter_message(await take_one(plain), reason="why not")
        assert (await take_one(dead)).dead_letter_source == f"{topic}/Subscriptions/plain"
        assert await listed(aio.client.list_subscription_sessions(topic, "sessions")) == ["s"]
        receiver = aio.receiver(topic, "sessions", session_id="s")
        assert str(await take_one(receiver)) == "x"

    async def test_message_that_cannot_be_forwarded_is_in_the_transfer_dead_letter_queue(
        self, aio: Flavour
    ) -> None:
        target = aio.queue(requires_session=True)
        graves = aio.queue()
        queue = aio.queue(forward_to=target)
        buried = aio.queue(forward_dead_lettered_messages_to=graves)
        sender, lost, other, receiver, dead = await aio.open(
            aio.sender(queue),
            aio.receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER),
            *await aio.pair(buried),
            aio.receiver(graves),
        )
        await sender.send_messages([ServiceBusMessage("lost"), sent("found", "s")])
        assert str(await take_one(lost)) == "lost"
        assert str(await take_one(aio.receiver(target, session_id="s"))) == "found"
        await other.send_messages(ServiceBusMessage("dead"))
        await receiver.dead_letter_message(await take_one(receiver))
        assert (await take_one(dead)).dead_letter_source == buried


def rule(name: str, *rights: Right) -> SharedAccessRule:
    return SharedAccessRule(name=name, primary_key=f"key-of-{name}", rights=frozenset(rights))


class TestRights:
    async def test_errors_are_those_of_service_bus(self, aio: Flavour) -> None:
        rules = (rule("sends", Right.SEND), rule("listens", Right.LISTEN))
        queue, other = aio.queue(authorization_rules=rules), aio.queue()
        of = aio.namespace.connection_string_of
        clients = {name: aio.connect(of(name, f"key-of-{name}")) for name in ("sends", "listens")}
        wrong = aio.connect(of("sends", "another key"))
        one = ServiceBusMessage("x")
        try:
            expected = {
                ServiceBusAuthorizationError: (
                    aio.sender(queue, client=clients["listens"]).send_messages(one),
                    aio.receiver(queue, client=clients["sends"]).receive_messages(1, 5),
                ),
                ServiceBusAuthenticationError: (
                    aio.sender(other, client=clients["sends"]).send_messages(one),
                    aio.sender(queue, client=wrong).send_messages(one),
                ),
            }
            refused = [asyncio.ensure_future(each) for all_ in expected.values() for each in all_]
            await aio.sender(queue, client=clients["sends"]).send_messages(one)
            await take_one(aio.receiver(queue, client=clients["listens"]))
            results = await asyncio.gather(*refused, return_exceptions=True)
            assert [type(each) for each in results] == [kind for kind in expected for _ in range(2)]
        finally:
            for client in (*clients.values(), wrong):
                await client.close()

    async def test_credentials_of_azure_core_are_accepted(self, aio: Flavour) -> None:
        queue = aio.queue()
        parsed = ConnectionString.parse(aio.namespace.connection_string)
        where = f"sb://localhost:{aio.namespace.port}/{queue}"
        signature = sign_token(where, parsed.key_name, parsed.key, int(time.time()) + 600)
        for credential, right in (
            (AzureSasCredential(signature), True),
            (AzureNamedKeyCredential(parsed.key_name, parsed.key), True),
            (AzureNamedKeyCredential(parsed.key_name, "another key"), False),
        ):
            host = f"localhost:{aio.namespace.port}"
            async with ServiceBusClient(host, credential, use_tls=False, **QUICK) as client:
                sender = aio.sender(queue, client=client)
                if right:
                    await sender.send_messages(ServiceBusMessage("x"))
                else:
                    with pytest.raises(ServiceBusError):
                        await sender.send_messages(ServiceBusMessage("x"))
        assert aio.held(queue) == 2


class TestTls:
    def over_tls(self, bench: Flavour, ca_file: str) -> Any:
        return bench.connect(
            bench.namespace.connection_string.replace("UseDevelopmentEmulator=true;", ""),
            custom_endpoint_address=f"sb://localhost:{bench.namespace.port}",
            transport_type=TransportType.Amqp,
            connection_verify=ca_file,
        )

    async def test_amqp_over_tls_is_served(self, aio: Flavour) -> None:
        queue = aio.queue()
        async with self.over_tls(aio, aio.namespace.ca_file) as client:
            sender, receiver = await aio.open(
                aio.sender(queue, client=client), aio.receiver(queue, client=client)
            )
            await sender.send_messages(ServiceBusMessage("x" * 200_000))
            message = await take_one(receiver)
            await receiver.complete_message(message)
        assert str(message) == "x" * 200_000
        assert aio.held(queue) == 0

    async def test_client_with_another_ca_cannot_connect(
        self, aio: Flavour, tls_files: TlsFiles
    ) -> None:
        queue = aio.queue()
        async with self.over_tls(aio, str(tls_files.ca)) as client:
            with pytest.raises(ServiceBusConnectionError):
                await aio.sender(queue, client=client).send_messages(ServiceBusMessage("x"))
        assert aio.held(queue) == 0
