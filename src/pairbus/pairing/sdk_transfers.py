"""The transfers of SDK senders: what was handed to the network, and what the service answered.

An exception of the SDK does not tell whether the messages of the failed call were transferred. One
call of `send_messages` makes several transfers when the SDK retries, or none when it cannot open a
link. So the deliveries of each sender are recorded while a call is in progress, in the list
`pairbus_transfers` of the sender, until the end of the call (`forget_transfers`).

Like `pairing.sdk`, this module uses private names of the SDK.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import __version__

from pairbus.pairing.sdk import DATA_SECTION, CallInterrupted, require
from pairbus.pairing.sdk_payloads import EncodedMessage, encode_frames_once

try:
    from azure.servicebus._pyamqp.constants import (
        SEND_DISPOSITION_ACCEPT,
        LinkDeliverySettleReason,
        SessionTransferState,
    )
    from azure.servicebus._pyamqp.message import BatchMessage, _MessageDelivery
except ImportError as exc:
    raise ImportError(
        f"azure-servicebus {__version__} is not supported by this version of pairbus: {exc}. "
        "Install a supported version of azure-servicebus."
    ) from exc

_message_class: Any = _MessageDelivery
require(_message_class(None), "delivery", "reason")

_ANSWERED = LinkDeliverySettleReason.DISPOSITION_RECEIVED
_MAY_HAVE_ARRIVED = "_pairbus_may_have_arrived"


def record_transfers(sender: Any, *, sizes: bool = False) -> None:
    """Record the transfers of a sender from now on; with `sizes` also the message sizes of each
    delivery, for the usage ledger, until `take_sizes` takes them. The sender can also send messages
    that are encoded already (`send_payloads`)."""
    sender.pairbus_limits = None
    sender.pairbus_transfers = []
    sender.pairbus_abandoned = False
    sender.pairbus_sizes = [] if sizes else None
    create_handler = sender._create_handler

    def create_and_record(auth: Any) -> None:
        create_handler(auth)
        _record_deliveries(sender)
        _record_requests(sender)

    sender._create_handler = create_and_record


def note_transfers(error: BaseException, sender: Any, *, abandoned: bool) -> None:
    """Note on the error of a call whether messages of the call may have arrived nevertheless. An
    abandoned call may still be in progress elsewhere; from now on it transfers nothing."""
    if abandoned:
        # Set before the transfers are read. A transfer is recorded before this flag is checked, so
        # that either it is found here, or it does not take place.
        sender.pairbus_abandoned = True
    unanswered = any(_is_unanswered(each, abandoned) for each in tuple(sender.pairbus_transfers))
    setattr(error, _MAY_HAVE_ARRIVED, unanswered)


def forget_transfers(sender: Any) -> None:
    """Forget the transfers of a call that has ended."""
    transfers = sender.pairbus_transfers
    for message in transfers:
        message.delivery = None  # it refers to the message: only the garbage collector frees both
    transfers.clear()


def may_have_arrived(error: BaseException) -> bool:
    """Return whether a call that failed with this error transferred its messages at least once
    without an answer of the service. False for an error of anything but a call of a sender."""
    return bool(getattr(error, _MAY_HAVE_ARRIVED, False))


def take_sizes(sender: Any) -> list[list[int]]:
    """Return the recorded sizes of each transfer, the last one first, and forget them."""
    sizes: list[list[int]] = sender.pairbus_sizes
    taken = sizes[::-1]
    sizes.clear()
    return taken


def _is_unanswered(message: Any, abandoned: bool) -> bool:
    """Return whether a message was transferred and not answered. In an abandoned call it counts
    when the SDK has accepted it for a transfer."""
    if message.reason == _ANSWERED:
        return False
    # The frame is made for each attempt, and has an id once the session begins to write it. If
    # writing fails or is cancelled, some of it may have been written.
    frame = None if message.delivery is None else message.delivery.frame
    return abandoned or (frame is not None and "delivery_id" in frame)


def _check_not_abandoned(sender: Any) -> None:
    if sender.pairbus_abandoned:
        raise CallInterrupted("the call was abandoned, because it took too long")


# Messages.


def _record_deliveries(sender: Any) -> None:
    handler, transfers, sizes = sender._handler, sender.pairbus_transfers, sender.pairbus_sizes
    changed: Any = None

    def change_session() -> None:
        # The session is created when the handler opens, so it is looked up at each transfer.
        nonlocal changed
        session = handler._link._session
        if session is not changed:
            changed = session
            encode_frames_once(session)
            if sizes is not None:
                _record_sizes(session, handler, sizes)

    # `message` is the SDK's record of a message. Its field `delivery` is not used by the SDK; the
    # delivery has the state of the message in the link and the session.
    if hasattr(handler, "_transfer_message_async"):
        transfer_message_async = handler._transfer_message_async

        async def transfer_async(message: Any, timeout_s: float = 0) -> Any:
            transfers.append(message)
            if sender.pairbus_abandoned:
                _check_not_abandoned(sender)
            change_session()
            message.delivery = await transfer_message_async(message, timeout_s)
            return message.delivery

        handler._transfer_message_async = transfer_async
        return

    transfer_message = handler._transfer_message

    def transfer(message: Any, timeout_s: float = 0) -> Any:
        transfers.append(message)
        if sender.pairbus_abandoned:
            _check_not_abandoned(sender)
        change_session()
        message.delivery = transfer_message(message, timeout_s)
        return message.delivery

    handler._transfer_message = transfer


# Management requests.


class _Request:
    """A management request, with the fields of the SDK's record of a message."""

    __slots__ = ("delivery", "reason")

    def __init__(self) -> None:
        self.delivery: Any = None
        self.reason: Any = None


def _record_requests(sender: Any) -> None:
    handler = sender._handler
    if hasattr(handler, "mgmt_request_async"):
        request_async = handler.mgmt_request_async

        async def recorded_async(message: Any, **options: Any) -> Any:
            with _recorded_request(sender, message):
                return await request_async(message, **options)

        handler.mgmt_request_async = recorded_async
        return

    request = handler.mgmt_request

    def recorded(message: Any, **options: Any) -> Any:
        with _recorded_request(sender, message):
            return request(message, **options)

    handler.mgmt_request = recorded


@contextmanager
def _recorded_request(sender: Any, message: Any) -> Iterator[None]:
    """Record the transfer of a management request. It is answered when the block ends without an
    exception, or when the request is not accepted."""
    request = _Request()
    session = sender._handler._session
    outgoing_transfer = session._outgoing_transfer

    def transfer(delivery: Any, *args: Any) -> Any:
        # The SDK copies the message, but not its properties. Tokens use the same session.
        if delivery.message.application_properties is message.application_properties:
            sender.pairbus_transfers.append(request)
            _check_not_abandoned(sender)
            request.delivery = delivery
            delivery.on_delivery_settled = _note_refusal(request, delivery.on_delivery_settled)
        return outgoing_transfer(delivery, *args)

    session._outgoing_transfer = transfer
    try:
        yield
        request.reason = _ANSWERED
    finally:
        session._outgoing_transfer = outgoing_transfer


def _note_refusal(request: _Request, on_settled: Any) -> Any:
    def settled(reason: Any, state: Any) -> Any:
        # An accepted request is answered by a response.
        if reason == _ANSWERED and not (state and SEND_DISPOSITION_ACCEPT in state):
            request.reason = reason
        return on_settled(reason, state)

    return settled


# Sizes, for the usage ledger.


def _record_sizes(session: Any, handler: Any, sizes: Any) -> None:
    # The size of a message is known after the SDK encoded it, and encoding it a second time would
    # double the cost of a send. After the transfer the SDK has forgotten it.
    outgoing_transfer = session._outgoing_transfer

    def transfer(delivery: Any, *args: Any) -> Any:
        message_sizes = _message_sizes(delivery)
        result = outgoing_transfer(delivery, *args)
        if result is None:
            return _add_sizes(delivery, message_sizes, handler, sizes)
        return _add_sizes_when_done(result, delivery, message_sizes, handler, sizes)

    session._outgoing_transfer = transfer


async def _add_sizes_when_done(
    result: Any, delivery: Any, message_sizes: list[int], handler: Any, sizes: list[list[int]]
) -> None:
    await result
    _add_sizes(delivery, message_sizes, handler, sizes)


def _message_sizes(delivery: Any) -> list[int]:
    """Return the size of each message of a delivery, before it is transferred."""
    if type(delivery.message) is EncodedMessage:
        return delivery.message.sizes
    if isinstance(delivery.message, BatchMessage):
        data: Any = delivery.message[DATA_SECTION]
        return list(map(len, data))
    return [len(delivery.frame["payload"])]


def _add_sizes(
    delivery: Any, message_sizes: list[int], handler: Any, sizes: list[list[int]]
) -> None:
    # A session whose window is closed transfers nothing, and the SDK tries again. The management
    # link uses the same session; its requests are counted by the operations.
    link = handler._link
    if (
        delivery.transfer_state == SessionTransferState.OKAY
        and link is not None
        and delivery.frame["handle"] == link.handle
    ):
        sizes.append(message_sizes)
