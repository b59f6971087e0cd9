"""Messages that may have arrived although a call of the SDK failed. The handlers, sessions and
links are those of the SDK; there is no network."""

import gc
import inspect
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.servicebus._pyamqp import sender as sender_sync
from azure.servicebus._pyamqp import session as session_sync
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.aio import _sender_async as sender_async
from azure.servicebus._pyamqp.aio import _session_async as session_async
from azure.servicebus._pyamqp.constants import LinkState, SenderSettleMode, SessionState
from azure.servicebus._pyamqp.message import BatchMessage, Message, _MessageDelivery
from azure.servicebus.exceptions import ServiceBusError

from pairbus.pairing.sdk import CallInterrupted
from pairbus.pairing.sdk_payloads import EncodedMessage
from pairbus.pairing.sdk_transfers import (
    forget_transfers,
    may_have_arrived,
    note_transfers,
    record_transfers,
    take_sizes,
)

TEXT = "Endpoint=sb://name.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=a2V5"
pytestmark = pytest.mark.rule("S5", "S11")

Outcome = dict[str, list[Any]]
ACCEPTED: Outcome = {"accepted": []}
REJECTED: Outcome = {"rejected": [[b"com.microsoft:server-busy", b"busy", None]]}
RELEASED: Outcome = {"released": []}
MODIFIED: Outcome = {"modified": [True, False, None]}


async def result_of(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class Connection:
    """A connection that records the frames that are written."""

    _remote_max_frame_size = 500
    _container_id = "container"

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.frames: list[Any] = []
        self.on_write: Callable[[], None] = lambda: None

    def _process_outgoing_frame(self, channel: int, frame: Any) -> Any:
        if self.is_async:
            return self._write_later(frame)
        return self._write(frame)

    async def _write_later(self, frame: Any) -> None:
        self._write(frame)

    def _write(self, frame: Any) -> None:
        self.on_write()
        self.frames.append(frame)


class Harness:
    """A sender of the SDK whose transfers are recorded, unless it is plain, with an attached
    link."""

    def __init__(self, flavour: ModuleType, *, sizes: bool = False, plain: bool = False) -> None:
        self.is_async = flavour is azure.servicebus.aio
        client = flavour.ServiceBusClient.from_connection_string(TEXT)
        self.sender = client.get_queue_sender("q")
        if not plain:
            record_transfers(self.sender, sizes=sizes)
        self.connect()

    def connect(self) -> None:
        """Create a handler with a new connection, as the SDK does for each attempt."""
        self.sender._create_handler(None)
        self.handler = self.sender._handler
        self.connection = Connection(self.is_async)
        modules = (session_async, sender_async) if self.is_async else (session_sync, sender_sync)
        session_module, sender_module = modules
        traces: dict[str, Any] = {"network_trace": False, "network_trace_params": {}}
        self.session = session_module.Session(self.connection, 0, **traces)
        self.session.state = SessionState.MAPPED
        self.session.remote_incoming_window = 100
        self.link, self.requests = (
            sender_module.SenderLink(
                self.session,
                handle,
                "target",
                send_settle_mode=SenderSettleMode.Unsettled,
                **traces | {"network_trace_params": {}},
            )
            for handle in (0, 1)
        )
        self.link.state = self.requests.state = LinkState.ATTACHED
        self.handler._session, self.handler._link = self.session, self.link

    async def enqueue(self, size: int = 10, content: Any = None) -> Any:
        """Enqueue a message as `send_message` of a handler does."""
        message = _MessageDelivery(Message(data=b"x" * size) if content is None else content)
        if self.is_async:
            await self.handler._transfer_message_async(message, 0)
        else:
            self.handler._transfer_message(message, 0)
        return message

    async def transfer(self, size: int = 10, content: Any = None) -> Any:
        """Enqueue a message, and let the link transfer it."""
        message = await self.enqueue(size, content)
        await result_of(self.link.update_pending_deliveries())
        return message

    async def answer(self, outcome: Outcome, link: Any = None, number: int = 0) -> None:
        """Let the service answer a delivery."""
        link = self.link if link is None else link
        frame = (True, number, None, True, outcome, False)
        await result_of(link._incoming_disposition(frame))

    async def request(self, respond: Callable[[], Any]) -> Any:
        """Make a management request. It is transferred, and then `respond` is called."""
        self.handler._mgmt_links["node"] = ManagementOperation(self, respond)
        request = Message(value={}, application_properties={})
        name = "mgmt_request_async" if self.is_async else "mgmt_request"
        return await result_of(getattr(self.handler, name)(request, node="node"))

    async def send_request(self, request: Any) -> None:
        """Transfer a request over the link for requests, as the SDK does."""
        await result_of(
            self.requests.send_transfer(
                # The SDK sends a copy with another message id.
                request._replace(value="copy"),
                on_send_complete=lambda reason, state: done() if self.is_async else None,
            )
        )

    async def fail(self, *, abandoned: bool = False) -> bool:
        """Let the call fail. Return whether its messages may have arrived."""
        error = RuntimeError()
        note_transfers(error, self.sender, abandoned=abandoned)
        return may_have_arrived(error)


async def done() -> None: ...


class ManagementOperation:
    """The management link of the SDK, which is open."""

    def __init__(self, harness: Harness, respond: Callable[[], Any]) -> None:
        self._harness = harness
        self._respond = respond

    def ready(self) -> Any:
        return self._answer() if self._harness.is_async else True

    async def _answer(self) -> bool:
        return True

    def execute(self, message: Any, **options: Any) -> Any:
        work = self._execute(message)
        if self._harness.is_async:
            return work
        try:  # no part of it waits in the sync flavour
            work.send(None)
        except StopIteration as stop:
            return stop.value
        raise AssertionError("the sync flavour waited")

    async def _execute(self, message: Any) -> Any:
        await self._harness.send_request(message)
        await result_of(self._respond())
        return 200, b"", message


@pytest.fixture(params=[azure.servicebus, azure.servicebus.aio], ids=["sync", "aio"])
def flavour(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def harness(flavour: ModuleType) -> Harness:
    return Harness(flavour)


async def test_transfer_without_an_answer_may_have_arrived(harness: Harness) -> None:
    await harness.transfer()

    assert len(harness.connection.frames) == 1
    assert await harness.fail()


@pytest.mark.parametrize("outcome", [ACCEPTED, REJECTED, RELEASED, MODIFIED], ids=list)
async def test_answered_transfer_leaves_no_doubt(harness: Harness, outcome: Outcome) -> None:
    await harness.transfer()
    await harness.answer(outcome)

    assert not await harness.fail()


async def test_call_without_a_transfer_leaves_no_doubt(harness: Harness) -> None:
    assert not await harness.fail()
    assert not may_have_arrived(RuntimeError())


async def test_message_that_waits_for_the_session_was_not_transferred(harness: Harness) -> None:
    harness.session.remote_incoming_window = 0
    await harness.transfer()

    assert harness.connection.frames == []
    assert not await harness.fail()


async def test_message_for_a_detached_link_was_not_transferred(harness: Harness) -> None:
    harness.link.state = LinkState.DETACHED
    with pytest.raises(Exception, match="not attached"):
        await harness.transfer()

    assert not await harness.fail()


async def test_message_that_cannot_be_encoded_was_not_transferred(harness: Harness) -> None:
    message = _MessageDelivery(Message(application_properties={"key": object()}))
    name = "_transfer_message_async" if harness.is_async else "_transfer_message"
    await result_of(getattr(harness.handler, name)(message, 0))
    with pytest.raises(TypeError):
        await result_of(harness.link.update_pending_deliveries())

    assert not await harness.fail()


@pytest.mark.parametrize("written", [0, 1])
async def test_write_that_fails_may_have_arrived(harness: Harness, written: int) -> None:
    """A write of the last frame that fails, or is cancelled, may be complete at the other end."""

    def fail() -> None:
        if len(harness.connection.frames) == written:
            raise ConnectionResetError

    harness.connection.on_write = fail
    with pytest.raises(ConnectionResetError):
        await harness.transfer(size=600)

    assert await harness.fail()


async def test_link_that_ends_before_the_answer_may_have_stored_the_message(
    harness: Harness,
) -> None:
    message = await harness.transfer()
    await result_of(harness.link._remove_pending_deliveries())

    assert message.error is not None
    assert await harness.fail()


async def test_first_attempt_of_a_retried_call_counts(harness: Harness) -> None:
    await harness.transfer()
    harness.connect()

    assert await harness.fail()


async def test_answered_first_attempt_and_a_second_without_a_transfer_leave_no_doubt(
    harness: Harness,
) -> None:
    await harness.transfer()
    await harness.answer(REJECTED)
    harness.connect()
    await harness.enqueue()

    assert not await harness.fail()


async def test_second_attempt_without_an_answer_counts(harness: Harness) -> None:
    await harness.transfer()
    await harness.answer(REJECTED)
    await harness.transfer()

    assert await harness.fail()


async def test_transfers_of_an_earlier_call_do_not_count(harness: Harness) -> None:
    await harness.transfer()
    harness.sender.pairbus_transfers.clear()  # at the end of each call

    assert not await harness.fail()


async def test_note_is_renewed_for_each_call(harness: Harness) -> None:
    error = RuntimeError()
    await harness.transfer()
    note_transfers(error, harness.sender, abandoned=False)
    assert may_have_arrived(error)
    harness.sender.pairbus_transfers.clear()

    note_transfers(error, harness.sender, abandoned=False)

    assert not may_have_arrived(error)


# Abandoned calls.


async def test_abandoned_call_counts_from_the_moment_when_the_link_has_the_message(
    harness: Harness,
) -> None:
    await harness.enqueue()
    assert not await harness.fail()

    assert await harness.fail(abandoned=True)


async def test_abandoned_call_transfers_nothing_later(harness: Harness) -> None:
    assert not await harness.fail(abandoned=True)

    with pytest.raises(CallInterrupted):
        await harness.transfer()
    with pytest.raises(CallInterrupted):
        await harness.request(lambda: None)
    assert harness.connection.frames == []


async def test_answered_transfer_of_an_abandoned_call_leaves_no_doubt(harness: Harness) -> None:
    await harness.transfer()
    await harness.answer(RELEASED)  # the SDK ignores it, and waits for another answer

    assert not await harness.fail(abandoned=True)


# Management requests.


def lose_response() -> None:
    raise TimeoutError


async def test_request_without_a_response_may_have_arrived(harness: Harness) -> None:
    with pytest.raises(TimeoutError):
        await harness.request(lose_response)

    assert len(harness.connection.frames) == 1
    assert await harness.fail()


async def test_request_with_a_response_leaves_no_doubt(harness: Harness) -> None:
    status, _, _ = await harness.request(lambda: None)

    assert status == 200
    assert not await harness.fail()


async def test_accepted_request_is_not_answered_yet(harness: Harness) -> None:
    async def accept() -> None:
        await harness.answer(ACCEPTED, harness.requests)
        lose_response()

    with pytest.raises(TimeoutError):
        await harness.request(accept)

    assert await harness.fail()


@pytest.mark.parametrize("outcome", [REJECTED, RELEASED, MODIFIED], ids=list)
async def test_request_that_was_not_accepted_leaves_no_doubt(
    harness: Harness, outcome: Outcome
) -> None:
    async def refuse() -> None:
        await harness.answer(outcome, harness.requests)
        lose_response()

    with pytest.raises(TimeoutError):
        await harness.request(refuse)

    assert len(harness.connection.frames) == 1
    assert not await harness.fail()


async def test_request_that_waits_for_the_session_was_not_transferred(harness: Harness) -> None:
    harness.session.remote_incoming_window = 0
    with pytest.raises(TimeoutError):
        await harness.request(lose_response)

    assert not await harness.fail()


async def test_token_that_is_sent_during_a_request_does_not_count(harness: Harness) -> None:
    async def send_token() -> None:
        await harness.send_request(Message(value="token", application_properties={}))
        await harness.answer(REJECTED, harness.requests, number=0)
        lose_response()

    with pytest.raises(TimeoutError):
        await harness.request(send_token)

    assert len(harness.connection.frames) == 2
    assert not await harness.fail()


async def test_session_is_restored_after_a_request(harness: Harness) -> None:
    before = harness.session._outgoing_transfer
    await harness.request(lambda: None)
    assert harness.session._outgoing_transfer == before


# Sizes.


async def test_sizes_and_transfers_are_recorded_together(flavour: ModuleType) -> None:
    harness = Harness(flavour, sizes=True)
    first = await harness.transfer(10)
    await harness.answer(ACCEPTED)
    await harness.transfer(600)

    assert await harness.fail()
    assert [len(sizes) for sizes in take_sizes(harness.sender)] == [1, 1]
    assert take_sizes(harness.sender) == []
    assert first.delivery.sent


def test_sizes_are_not_recorded_without_a_ledger(harness: Harness) -> None:
    assert harness.sender.pairbus_sizes is None


def test_error_of_any_class_can_be_noted() -> None:
    for error in (KeyboardInterrupt(), OSError(1, "x"), ServiceBusError("x")):
        note_transfers(error, SimpleNamespace(pairbus_transfers=[]), abandoned=False)
        assert not may_have_arrived(error)


# Frames, and encoded messages.


@pytest.mark.rule("S6")
@pytest.mark.parametrize("size", [1, 200, 243, 244, 245, 450, 500, 2000])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("encoded", [True, False], ids=["encoded", "not encoded"])
async def test_messages_are_transferred_as_the_sdk_would_transfer_them(
    flavour: ModuleType, size: int, count: int, encoded: bool
) -> None:
    """The connection takes frames of 500 bytes, so that some sizes need one and others several."""
    payloads = [bytes(encode_payload(bytearray(), Message(data=[b"x" * size])))] * count
    message = Message(data=[b"x" * size]) if count == 1 else BatchMessage(data=payloads)
    ours, plain = Harness(flavour), Harness(flavour, plain=True)

    for _ in range(2):
        await ours.transfer(content=EncodedMessage.of(payloads) if encoded else message)
        await plain.transfer(content=message)

    assert [without_types(frame) for frame in ours.connection.frames] == [
        without_types(frame) for frame in plain.connection.frames
    ]
    assert len(ours.connection.frames) >= 2
    for name in ("next_outgoing_id", "remote_incoming_window", "outgoing_window"):
        assert getattr(ours.session, name) == getattr(plain.session, name)
    assert ours.link.current_link_credit == plain.link.current_link_credit
    assert ours.link.delivery_count == plain.link.delivery_count


def without_types(frame: Any) -> Any:
    """Return a frame whose payload is bytes: the SDK uses a bytearray."""
    return frame._replace(payload=bytes(frame.payload))


@pytest.mark.rule("S5", "S11")
async def test_encoded_message_waits_for_the_window_of_the_session(flavour: ModuleType) -> None:
    harness = Harness(flavour, sizes=True)
    harness.session.remote_incoming_window = 0

    await harness.transfer(content=EncodedMessage.of([b"payload"]))
    assert harness.connection.frames == []
    assert not await harness.fail()
    assert take_sizes(harness.sender) == []

    harness.session.remote_incoming_window = 1
    await result_of(harness.link.update_pending_deliveries())
    (frame,) = harness.connection.frames
    assert frame.payload == b"payload"
    assert await harness.fail()
    assert take_sizes(harness.sender) == [[7]]


@pytest.mark.rule("S5", "S11")
async def test_encoded_message_may_have_arrived_if_writing_fails(flavour: ModuleType) -> None:
    harness = Harness(flavour)

    def fail() -> None:
        raise OSError("broken")

    harness.connection.on_write = fail
    with pytest.raises(OSError, match="broken"):
        await harness.transfer(content=EncodedMessage.of([b"payload"]))

    assert await harness.fail()


async def test_transfers_leave_nothing_to_the_garbage_collector(flavour: ModuleType) -> None:
    harness = Harness(flavour)
    await harness.transfer()
    await harness.answer(ACCEPTED)
    message = weakref.ref(harness.sender.pairbus_transfers[0])
    gc.collect()
    gc.disable()
    try:
        forget_transfers(harness.sender)
        assert message() is None
    finally:
        gc.enable()
