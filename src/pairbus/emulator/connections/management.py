"""The operations of an entity's `$management` node: peek, settle, renew, schedule, sessions,
rules."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pairbus.amqp.lock_tokens import to_lock_tokens
from pairbus.amqp.types import Array, Timestamp
from pairbus.emulator.auth import Right
from pairbus.emulator.connections.rule_codec import encode_rule, parse_rule_map
from pairbus.emulator.entities.descriptions import SubscriptionDescription
from pairbus.emulator.entities.entity import Entity
from pairbus.emulator.entities.message_codec import encode_deferred, encode_peeked, parse_message
from pairbus.emulator.entities.queue import MessageQueue
from pairbus.emulator.entities.queue_settings import MAX_TIMESTAMP_MS
from pairbus.emulator.entities.sessions import Sessions
from pairbus.errors import (
    AmqpError,
    Busy,
    ConfigurationError,
    DecodeError,
    EntityDisabled,
    EntityExists,
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
from pairbus.servicebus.limits import MAX_PAGE_SIZE

if TYPE_CHECKING:
    from pairbus.emulator.connections.amqp_connection import AmqpConnection

_STATUSES: tuple[tuple[type[PairbusError], int], ...] = (
    (NotAuthorized, 401),
    (EntityNotFound, 404),
    (MessageNotFound, 404),
    (EntityExists, 409),
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
    """Return the status of the response to a request that failed."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def error_for_status(status: int, description: str) -> AmqpError:
    """Return an error that has this status."""
    kinds = (kind for kind, code in _STATUSES if code == status and issubclass(kind, AmqpError))
    kind = next(kinds, Unavailable if status >= 500 else Refused)
    return kind(description)


def carries_messages(operation: str) -> bool:
    """Return True if requests for the operation carry messages to store."""
    return _bare(operation) == _bare(management.SCHEDULE_MESSAGE)


def _bare(operation: str) -> str:
    """Return an operation without its prefix, which some clients leave out."""
    return operation.removeprefix(management.PREFIX)


class ManagementRequest:
    """A request to the `$management` node of an entity, with its parameters."""

    def __init__(
        self, connection: "AmqpConnection", entity: Entity, queue: MessageQueue, body: Any
    ) -> None:
        self.runtime = connection.runtime
        self.max_bytes = max(1, connection.writable_bytes)
        """Size at which a response is full, so that a client that does not read fills no memory.
        A client that peeks or receives deferred messages requests the rest again."""
        self.entity = entity
        self.queue = queue
        self.now_ms = self.runtime.now_ms()
        self._body = body if isinstance(body, dict) else {}

    def required(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return a parameter. Raises DecodeError if it is missing or of another type."""
        value = self._body.get(name)
        if not isinstance(value, kind):
            raise DecodeError(f"The request needs {name!r}.")
        return value

    def optional(self, name: str, kind: type) -> Any:
        """Return a parameter, or None. Raises DecodeError if it is of another type."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, kind):
            raise DecodeError(f"{name!r} of the request has the wrong type.")
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        """Return the items of an array or list that are all of one type."""
        value = self.required(name, (Array, list))
        items = list(value.elements) if isinstance(value, Array) else value
        if not all(isinstance(item, kind) for item in items):
            raise DecodeError(f"{name!r} of the request has an item of the wrong type.")
        return items

    def lock_tokens(self) -> list[bytes]:
        return to_lock_tokens(self.items("lock-tokens", UUID))

    def sequence_numbers(self) -> list[int]:
        return [int(number) for number in self.items("sequence-numbers", int)]

    def sessions(self) -> Sessions:
        if self.queue.sessions is None:
            raise Refused(f"{self.queue.path!r} does not require sessions.")
        return self.queue.sessions

    def subscription(self) -> Entity:
        if not isinstance(self.entity.description, SubscriptionDescription):
            raise Refused(f"{self.entity.path!r} is not a subscription. It has no rules.")
        return self.entity

    def count(self, kind: str, size: int = 0) -> None:
        """Meter an operation on a message."""
        self.runtime.meter.add(self.queue.path, kind, size)

    def count_without_message(self, kind: str) -> None:
        self.runtime.meter.add_without_message(self.queue.path, kind)


def _peek(request: ManagementRequest) -> tuple[int, Any]:
    start = request.required("from-sequence-number", int)
    limit = max(0, min(request.required("message-count", int), 1000))
    session = request.optional("session-id", str)
    messages = request.queue.peek(max(0, start - 1), limit, session, request.max_bytes)
    if not messages:
        request.count_without_message("peek")
        return 204, None
    for stored in messages:
        request.count("peek", stored.size)
    return 200, {"messages": [{"message": encode_peeked(stored)} for stored in messages]}


def _update_disposition(request: ManagementRequest) -> tuple[int, Any]:
    status = request.required("disposition-status", str)
    changes = request.optional("properties-to-modify", dict) or {}
    tokens = request.lock_tokens()
    if not request.queue.has_locks(tokens, request.now_ms):
        raise LockLost(
            "The lock supplied is invalid. Either the lock expired, or the message has already "
            f"been removed from {request.queue.path!r}."
        )
    if status == management.COMPLETED:
        request.queue.complete_all(tokens, request.now_ms)
        request.runtime.meter.add_messages(request.queue.path, "complete", [0] * len(tokens))
        return 200, None
    for token in tokens:
        if status == management.ABANDONED:
            request.queue.abandon(token, changes, request.now_ms)
            request.count("abandon")
        elif status == management.DEFERRED:
            request.queue.defer(token, changes, request.now_ms)
            request.count("defer")
        elif status == management.DEAD_LETTERED:
            request.queue.dead_letter(
                token,
                request.optional("deadletter-reason", str),
                request.optional("deadletter-description", str),
                changes,
                request.now_ms,
            )
            request.count("dead-letter")
        else:
            raise Refused(f"The disposition {status!r} does not exist.")
    return 200, None


def _renew_lock(request: ManagementRequest) -> tuple[int, Any]:
    until = []
    for token in request.lock_tokens():
        until.append(Timestamp(request.queue.renew_lock(token, request.now_ms)))
        request.count("renew")
    return 200, {"expirations": Array(Timestamp, tuple(until))}


def _schedule(request: ManagementRequest) -> tuple[int, Any]:
    messages = []
    for entry in request.items("messages", dict):
        payload = entry.get("message")
        if not isinstance(payload, bytes):
            raise DecodeError("A message to schedule has no payload.")
        messages.append(parse_message(payload))
    request.runtime.faults.check_disabled(request.queue.path)
    stored = [message for message in messages if not message.is_ping]
    sequences = iter(request.runtime.entities.router.send(request.entity, stored, request.now_ms))
    numbers = [0 if message.is_ping else next(sequences) for message in messages]
    for message in messages:
        request.count("schedule", message.size)
    return 200, {"sequence-numbers": Array(int, tuple(numbers))}


def _cancel(request: ManagementRequest) -> tuple[int, Any]:
    numbers = request.sequence_numbers()
    request.queue.cancel_scheduled(numbers)
    for _ in numbers:
        request.count("cancel")
    return 200, None


def _receive(request: ManagementRequest) -> tuple[int, Any]:
    numbers = request.sequence_numbers()
    locked = request.required("receiver-settle-mode", int) != 0
    session = request.optional("session-id", str)
    entries = []
    for stored, lock in request.queue.receive_deferred(
        numbers, request.now_ms, locked=locked, session=session, max_bytes=request.max_bytes
    ):
        entry: dict[str, Any] = {
            "message": encode_deferred(stored, None if lock is None else lock.until_ms)
        }
        if lock is not None:
            entry["lock-token"] = UUID(bytes_le=lock.token)
        entries.append(entry)
        request.count("receive", stored.size)
    return 200, {"messages": entries}


def _renew_session_lock(request: ManagementRequest) -> tuple[int, Any]:
    until = request.sessions().renew(request.required("session-id", str), request.now_ms)
    request.count_without_message("renew")
    return 200, {"expiration": Timestamp(until)}


def _get_session_state(request: ManagementRequest) -> tuple[int, Any]:
    state = request.sessions().state(request.required("session-id", str))
    request.count_without_message("session-state")
    return 200, {"session-state": state}


def _set_session_state(request: ManagementRequest) -> tuple[int, Any]:
    session = request.required("session-id", str)
    sessions = request.sessions()
    sessions.locked_until(session)
    sessions.set_state(session, request.optional("session-state", bytes), request.now_ms)
    request.count_without_message("session-state")
    return 200, None


def _get_message_sessions(request: ManagementRequest) -> tuple[int, Any]:
    skip, top = request.required("skip", int), request.required("top", int)
    updated_after = request.optional("last-updated-time", Timestamp)
    if updated_after is not None and updated_after > MAX_TIMESTAMP_MS:
        updated_after = None  # clients use it to list all sessions
    ids = request.sessions().ids(updated_after)[skip : skip + top]
    request.count_without_message("session-state")
    if not ids:
        return 204, None
    return 200, {"skip": skip + len(ids), "sessions-ids": Array(str, tuple(ids))}


def _add_rule(request: ManagementRequest) -> tuple[int, Any]:
    name = request.required("rule-name", str)
    description = request.required("rule-description", dict)
    try:
        rule = parse_rule_map(name, description)
        request.runtime.entities.create_rule(request.subscription().path, rule, request.now_ms)
    except ConfigurationError as exc:
        raise Refused(str(exc), condition=conditions.ARGUMENT_ERROR) from exc
    request.count_without_message("management")
    return 200, None


def _remove_rule(request: ManagementRequest) -> tuple[int, Any]:
    name, path = request.required("rule-name", str), request.subscription().path
    try:
        request.runtime.entities.delete_rule(path, name, request.now_ms)
    except EntityNotFound as exc:
        # The JavaScript SDK retries any other wording.
        raise EntityNotFound(
            f"The messaging entity '{path}/Rules/{name}' could not be found."
        ) from exc
    request.count_without_message("management")
    return 200, None


def _enumerate_rules(request: ManagementRequest) -> tuple[int, Any]:
    skip, top = request.required("skip", int), request.required("top", int)
    subscription = request.subscription()
    rules = sorted(subscription.rules.values(), key=lambda rule: rule.name.lower())
    page = rules[max(0, skip) :][: max(0, min(top, MAX_PAGE_SIZE))]
    request.count_without_message("management")
    if not page:
        return 204, None
    created_ms = subscription.row.created_ms
    return 200, {"rules": [{"rule-description": encode_rule(rule, created_ms)} for rule in page]}


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
    # As in the service: over AMQP the Listen right is enough.
    _bare(management.ADD_RULE): (Right.LISTEN, _add_rule),
    _bare(management.REMOVE_RULE): (Right.LISTEN, _remove_rule),
    _bare(management.ENUMERATE_RULES): (Right.LISTEN, _enumerate_rules),
}

_METERED_AS: dict[Callable[[ManagementRequest], tuple[int, Any]], str] = {
    _peek: "peek",
    _receive: "receive",
    _schedule: "schedule",
    _add_rule: "management",
    _remove_rule: "management",
    _enumerate_rules: "management",
}
"""The operations that a namespace throttles, and the kind under which each is metered."""


def execute(
    connection: "AmqpConnection", entity: Entity, queue: MessageQueue, operation: str, body: Any
) -> tuple[int, Any]:
    """Execute a request, and return the status and body of its response. Raises PairbusError."""
    entry = _OPERATIONS.get(_bare(operation))
    if entry is None:
        raise Refused(
            f"The operation {operation[:64]!r} does not exist.",
            condition=conditions.NOT_IMPLEMENTED,
        )
    right, run = entry
    connection.authorize(queue.path, right)
    throttle, kind = connection.runtime.throttle, _METERED_AS.get(run)
    if throttle is not None and kind is not None:
        throttle.admit(kind)
    connection.runtime.entities.touch(entity, connection.runtime.now_ms())
    return run(ManagementRequest(connection, entity, queue, body))
