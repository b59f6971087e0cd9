"""What a namespace does on request, over an entity's `$management` node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from pairbus.amqp.client.client import Client
from pairbus.amqp.client.request_response import RequestResponseLinks, Response
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Array, Int32, Timestamp, UInt
from pairbus.errors import ProtocolError
from pairbus.servicebus import annotations, management
from pairbus.servicebus.entity_paths import management_path
from pairbus.servicebus.management import COMPLETED

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DeferredMessage:
    """A message that was received by its sequence number: its bytes, and its lock if it has one."""

    payload: bytes
    lock_token: UUID | None


class Management:
    """Requests to one queue or subscription. Several can be under way: `post_…`, then `wait`."""

    def __init__(self, client: Client, path: str) -> None:
        self.client = client
        self.path = path
        self._requests = RequestResponseLinks(
            client,
            management_path(path),
            status_key=management.STATUS_CODE,
            description_key=management.STATUS_DESCRIPTION,
        )

    def __enter__(self) -> "Management":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._requests.close()

    def peek(
        self,
        from_sequence_number: int = 1,
        count: int = 1,
        *,
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[bytes]:
        """Encoded messages from a sequence number on, without taking or locking them."""
        body: dict[str, Any] = {
            "from-sequence-number": from_sequence_number,
            "message-count": Int32(count),
        }
        if session_id is not None:
            body["session-id"] = session_id
        answer = self._ask(management.PEEK_MESSAGE, body, timeout_s)
        return [_payload(entry) for entry in _messages(answer)]

    def post_settle(
        self,
        lock_tokens: Iterable[UUID],
        status: str = COMPLETED,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties_to_modify: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Settle messages by their lock tokens, whichever connection received them."""
        deadline = self.client.deadline(timeout_s)
        body: dict[str, Any] = {
            "disposition-status": status,
            "lock-tokens": Array(UUID, tuple(lock_tokens)),
        }
        if reason is not None:
            body["deadletter-reason"] = reason
        if description is not None:
            body["deadletter-description"] = description
        if properties_to_modify is not None:
            body["properties-to-modify"] = dict(properties_to_modify)
        if session_id is not None:
            body["session-id"] = session_id
        return self._post(management.UPDATE_DISPOSITION, body, deadline)

    def wait(self, responses: Sequence[Response], *, timeout_s: float | None = None) -> None:
        """Wait until each has its answer; `response.raise_for_status` tells what it was."""
        self._requests.wait(list(responses), self.client.deadline(timeout_s))

    def settle(self, lock_tokens: Iterable[UUID], status: str = COMPLETED, **options: Any) -> None:
        """Settle, and wait for the answer. Raises LockLost if one of the locks is gone."""
        deadline = self.client.deadline(options.get("timeout_s"))
        response = self.post_settle(lock_tokens, status, **options)
        self._requests.wait([response], deadline)
        response.raise_for_status(f"settling on {self.path!r} failed")

    def renew_locks(
        self, lock_tokens: Iterable[UUID], *, timeout_s: float | None = None
    ) -> list[Timestamp]:
        """Start the locks anew; until when each holds now."""
        body = {"lock-tokens": Array(UUID, tuple(lock_tokens))}
        answer = self._ask(management.RENEW_LOCK, body, timeout_s)
        return _items(answer, "expirations", Timestamp)

    def schedule(self, messages: Iterable[bytes], *, timeout_s: float | None = None) -> list[int]:
        """Hand over encoded messages that carry `x-opt-scheduled-enqueue-time`; their sequence
        numbers."""
        body = {"messages": [_to_schedule(payload) for payload in messages]}
        answer = self._ask(management.SCHEDULE_MESSAGE, body, timeout_s)
        return _items(answer, "sequence-numbers", int)

    def cancel(self, sequence_numbers: Iterable[int], *, timeout_s: float | None = None) -> None:
        """Cancel scheduled messages. Raises MessageNotFound if one is not there any more."""
        body = {"sequence-numbers": Array(int, tuple(sequence_numbers))}
        self._ask(management.CANCEL_SCHEDULED_MESSAGE, body, timeout_s)

    def receive(
        self,
        sequence_numbers: Iterable[int],
        *,
        settled: bool = False,
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> list[DeferredMessage]:
        """Receive deferred messages by their sequence numbers."""
        body: dict[str, Any] = {
            "sequence-numbers": Array(int, tuple(sequence_numbers)),
            "receiver-settle-mode": UInt(0 if settled else 1),
        }
        if session_id is not None:
            body["session-id"] = session_id
        answer = self._ask(management.RECEIVE_BY_SEQUENCE_NUMBER, body, timeout_s)
        return [_taken(entry) for entry in _messages(answer)]

    def get_session_state(self, session_id: str, *, timeout_s: float | None = None) -> bytes | None:
        answer = self._ask(management.GET_SESSION_STATE, {"session-id": session_id}, timeout_s)
        state = answer.get("session-state") if isinstance(answer, dict) else None
        return state if isinstance(state, bytes) else None

    def set_session_state(
        self, session_id: str, state: bytes | None, *, timeout_s: float | None = None
    ) -> None:
        body = {"session-id": session_id, "session-state": state}
        self._ask(management.SET_SESSION_STATE, body, timeout_s)

    def renew_session_lock(self, session_id: str, *, timeout_s: float | None = None) -> Timestamp:
        """Start the lock of a session anew; until when it holds now."""
        answer = self._ask(management.RENEW_SESSION_LOCK, {"session-id": session_id}, timeout_s)
        until = answer.get("expiration") if isinstance(answer, dict) else None
        if not isinstance(until, Timestamp):
            raise ProtocolError(f"{self.path!r} renewed a session without saying until when")
        return until

    def _post(self, operation: str, body: dict[str, Any], deadline: float) -> Response:
        milliseconds = max(int((deadline - self.client.now()) * 1000), 1)
        return self._requests.post(
            {"operation": operation, management.SERVER_TIMEOUT: UInt(milliseconds)},
            body,
            deadline,
        )

    def _ask(self, operation: str, body: dict[str, Any], timeout_s: float | None) -> Any:
        deadline = self.client.deadline(timeout_s)
        response = self._post(operation, body, deadline)
        self._requests.wait([response], deadline)
        response.raise_for_status(f"{operation} on {self.path!r} failed")
        return response.body


def _to_schedule(payload: bytes) -> dict[str, Any]:
    """A message as `schedule-message` takes it: what decides where it goes stands beside it."""
    message = Message.parse(payload)
    properties = message.read_properties()
    beside = {
        "message-id": None if properties.message_id is None else str(properties.message_id),
        "session-id": properties.group_id,
        "partition-key": message.read_message_annotations().get(annotations.PARTITION_KEY),
    }
    return {name: value for name, value in beside.items() if value is not None} | {
        "message": payload
    }


def _items(answer: Any, key: str, kind: type[Item]) -> list[Item]:
    """The list or array under a key of an answer, checked to be what it should be."""
    found = answer.get(key) if isinstance(answer, dict) else None
    items = found.elements if isinstance(found, Array) else found
    if not isinstance(items, list | tuple) or not all(isinstance(item, kind) for item in items):
        raise ProtocolError(f"an answer has no {key!r}, or not of the right type")
    return list(items)


def _messages(answer: Any) -> list[dict[Any, Any]]:
    """Messages of an answer; none where it has no body (status 204)."""
    if not isinstance(answer, dict) or "messages" not in answer:
        return []
    return _items(answer, "messages", dict)


def _payload(entry: dict[Any, Any]) -> bytes:
    payload = entry.get("message")
    if not isinstance(payload, bytes):
        raise ProtocolError("an answer has a message without bytes")
    return payload


def _taken(entry: dict[Any, Any]) -> DeferredMessage:
    token = entry.get("lock-token")
    if token is not None and not isinstance(token, UUID):
        raise ProtocolError("an answer has a lock token that is not a uuid")
    return DeferredMessage(_payload(entry), token)
