"""What an entity does on request, over its `$management` node."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pairbus.amqp.types import Array, Timestamp
from pairbus.emulator.auth import Right
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import encode_delivery, encode_peeked, parse_message
from pairbus.emulator.entities.queue import MAX_TIMESTAMP_MS, MessageQueue
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    DecodeError,
    EntityDisabled,
    EntityNotFound,
    LockLost,
    MessageNotFound,
    MessageTooLarge,
    NotAuthorized,
    OperationTimeout,
    PairbusError,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus import conditions, management

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

_STATUSES: tuple[tuple[type[PairbusError], int], ...] = (
    (NotAuthorized, 401),
    (EntityNotFound, 404),
    (MessageNotFound, 404),
    (LockLost, 410),
    (QuotaExceeded, 403),
    (MessageTooLarge, 400),
    (EntityDisabled, 400),
    (Busy, 503),
    (OperationTimeout, 408),
    (Refused, 400),
    (DecodeError, 400),
    (ConfigurationError, 400),
)


def status_of(error: PairbusError) -> int:
    """The status of a response that says no."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def error_for_status(status: int, description: str) -> AmqpError:
    """The error that a status stands for."""
    kinds = (kind for kind, one in _STATUSES if one == status and issubclass(kind, AmqpError))
    kind = next(kinds, Unavailable if status >= 500 else Refused)
    return kind(description)


def carries_messages(operation: str) -> bool:
    """Whether messages arrive with it."""
    return _bare(operation) == _bare(management.SCHEDULE_MESSAGE)


def _bare(operation: str) -> str:
    """Return an operation without its prefix, which some clients leave out."""
    return operation.removeprefix(management.PREFIX)


class ManagementRequest:
    """One request: what it is for, and its parameters."""

    def __init__(
        self, peer: "AmqpConnection", entity: Entity, queue: MessageQueue, body: Any
    ) -> None:
        self.core = peer.core
        self.room = max(1, peer.room)
        """No more messages in the answer once they have so many bytes: the peer has not read what
        came before. Whoever peeks or takes deferred messages asks again for those behind."""
        self.entity = entity
        self.queue = queue
        self.now_ms = peer.core.now_ms()
        self._body = body if isinstance(body, dict) else {}

    def given(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """A parameter. Raises DecodeError where it is missing or of the wrong type."""
        value = self._body.get(name)
        if not isinstance(value, kind):
            raise DecodeError(f"The request needs {name!r}.")
        return value

    def optional(self, name: str, kind: type) -> Any:
        value = self._body.get(name)
        if value is not None and not isinstance(value, kind):
            raise DecodeError(f"{name!r} of the request has the wrong type.")
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        """A parameter that is an array or a list of one type."""
        value = self.given(name, (Array, list))
        found = list(value.elements) if isinstance(value, Array) else value
        if not all(isinstance(item, kind) for item in found):
            raise DecodeError(f"{name!r} of the request holds something of the wrong type.")
        return found

    def tokens(self) -> list[bytes]:
        return [token.bytes_le for token in self.items("lock-tokens", UUID)]

    def count(self, kind: str, size: int = 0) -> None:
        self.core.meter.add(self.queue.path, kind, size)


def _peek(call: ManagementRequest) -> tuple[int, Any]:
    start = call.given("from-sequence-number", int)
    limit = max(0, min(call.given("message-count", int), 1000))
    session = call.optional("session-id", str)
    found = call.queue.peek(start - 1 if start > 0 else 0, limit, session, call.room)
    if not found:
        call.core.meter.add_without_message(call.queue.path, "peek")
        return 204, None
    for stored in found:
        call.count("peek", stored.size)
    return 200, {"messages": [{"message": encode_peeked(stored)} for stored in found]}


def _update_disposition(call: ManagementRequest) -> tuple[int, Any]:
    status = call.given("disposition-status", str)
    changes = call.optional("properties-to-modify", dict) or {}
    tokens = call.tokens()
    for token in tokens:
        if not call.queue.has_lock(token, call.now_ms):
            raise LockLost(
                "The lock supplied is invalid. Either the lock expired, or the message has already "
                f"been removed from {call.queue.path!r}."
            )
    for token in tokens:
        if status == management.COMPLETED:
            call.queue.complete(token, call.now_ms)
            call.count("complete")
        elif status == management.ABANDONED:
            call.queue.abandon(token, changes, call.now_ms)
            call.count("abandon")
        elif status == management.DEFERRED:
            call.queue.defer(token, changes, call.now_ms)
            call.count("defer")
        elif status == management.DEAD_LETTERED:
            call.queue.dead_letter(
                token,
                call.optional("deadletter-reason", str),
                call.optional("deadletter-description", str),
                changes,
                call.now_ms,
            )
            call.count("dead-letter")
        else:
            raise Refused(f"There is no disposition {status!r}.")
    return 200, None


def _renew_lock(call: ManagementRequest) -> tuple[int, Any]:
    until = []
    for token in call.tokens():
        until.append(Timestamp(call.queue.renew_lock(token, call.now_ms)))
        call.count("renew")
    return 200, {"expirations": Array(Timestamp, tuple(until))}


def _schedule(call: ManagementRequest) -> tuple[int, Any]:
    messages = []
    for entry in call.items("messages", dict):
        payload = entry.get("message")
        if not isinstance(payload, bytes):
            raise DecodeError("A message to be scheduled has no bytes.")
        messages.append(parse_message(payload))
    if call.core.faults and call.core.faults.fire(("disable",), call.queue.path):
        raise EntityDisabled(f"{call.queue.path!r} is disabled, as a fault asks for.")
    kept = [message for message in messages if not message.is_ping]
    given = iter(call.core.entities.router.send(call.entity, kept, call.now_ms))
    numbers = [0 if message.is_ping else next(given) for message in messages]
    for message in messages:
        call.count("schedule", message.size)
    return 200, {"sequence-numbers": Array(int, tuple(numbers))}


def _cancel(call: ManagementRequest) -> tuple[int, Any]:
    numbers = call.items("sequence-numbers", int)
    call.queue.cancel_scheduled([int(number) for number in numbers])
    for _ in numbers:
        call.count("cancel")
    return 200, None


def _receive(call: ManagementRequest) -> tuple[int, Any]:
    numbers = [int(number) for number in call.items("sequence-numbers", int)]
    locked = call.given("receiver-settle-mode", int) != 0
    session = call.optional("session-id", str)
    entries = []
    for stored, lock in call.queue.receive_deferred(
        numbers, call.now_ms, locked=locked, session=session, max_bytes=call.room
    ):
        entry: dict[str, Any] = {
            "message": encode_delivery(
                stored, stored.deliveries, None if lock is None else lock.until_ms
            )
        }
        if lock is not None:
            entry["lock-token"] = UUID(bytes_le=lock.token)
        entries.append(entry)
        call.count("receive", stored.size)
    return 200, {"messages": entries}


def _sessions(call: ManagementRequest) -> Any:
    if call.queue.sessions is None:
        raise Refused(f"{call.queue.path!r} has no sessions.")
    return call.queue.sessions


def _renew_session_lock(call: ManagementRequest) -> tuple[int, Any]:
    until = _sessions(call).renew(call.given("session-id", str), call.now_ms)
    call.core.meter.add_without_message(call.queue.path, "renew")
    return 200, {"expiration": Timestamp(until)}


def _get_session_state(call: ManagementRequest) -> tuple[int, Any]:
    state = _sessions(call).state(call.given("session-id", str))
    call.core.meter.add_without_message(call.queue.path, "session-state")
    return 200, {"session-state": state}


def _set_session_state(call: ManagementRequest) -> tuple[int, Any]:
    session = call.given("session-id", str)
    sessions = _sessions(call)
    sessions.locked_until(session)
    sessions.set_state(session, call.optional("session-state", bytes), call.now_ms)
    call.core.meter.add_without_message(call.queue.path, "session-state")
    return 200, None


def _get_message_sessions(call: ManagementRequest) -> tuple[int, Any]:
    skip, top = call.given("skip", int), call.given("top", int)
    updated_after = call.optional("last-updated-time", Timestamp)
    if updated_after is not None and updated_after > MAX_TIMESTAMP_MS:
        updated_after = None  # how clients say that they want them all
    names: Sequence[str] = _sessions(call).ids(updated_after)[skip : skip + top]
    call.core.meter.add_without_message(call.queue.path, "session-state")
    if not names:
        return 204, None
    return 200, {"skip": skip + len(names), "sessions-ids": Array(str, tuple(names))}


_OPERATIONS: dict[str, tuple[Right, Callable[[ManagementRequest], tuple[int, Any]]]] = {
    _bare(management.PEEK_MESSAGE): (Right.LISTEN, _peek),
    _bare(management.UPDATE_DISPOSITION): (Right.LISTEN, _update_disposition),
    _bare(management.RENEW_LOCK): (Right.LISTEN, _renew_lock),
    _bare(management.RECEIVE_BY_SEQUENCE_NUMBER): (Right.LISTEN, _receive),
    _bare(management.RENEW_SESSION_LOCK): (Right.LISTEN, _renew_session_lock),
    _bare(management.GET_SESSION_STATE): (Right.LISTEN, _get_session_state),
    _bare(management.SET_SESSION_STATE): (Right.LISTEN, _set_session_state),
    _bare(management.GET_MESSAGE_SESSIONS): (Right.LISTEN, _get_message_sessions),
    _bare(management.SCHEDULE_MESSAGE): (Right.SEND, _schedule),
    _bare(management.CANCEL_SCHEDULED_MESSAGE): (Right.SEND, _cancel),
}


def execute(
    peer: "AmqpConnection", entity: Entity, queue: MessageQueue, operation: str, body: Any
) -> tuple[int, Any]:
    """Status and body of the response. Raises PairbusError."""
    found = _OPERATIONS.get(_bare(operation))
    if found is None:
        raise Refused(
            f"There is no operation {operation[:64]!r}.", condition=conditions.NOT_IMPLEMENTED
        )
    right, run = found
    peer.check(queue.path, right)
    peer.core.entities.touch(entity, peer.core.now_ms())
    return run(ManagementRequest(peer, entity, queue, body))
