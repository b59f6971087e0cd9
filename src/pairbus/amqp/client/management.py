"""Operations on the `$management` node of an entity."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from pairbus.amqp.client.client import Client
from pairbus.amqp.client.request_response import RequestResponseLinks, Response
from pairbus.amqp.lock_tokens import encode_lock_tokens
from pairbus.amqp.sections import Message
from pairbus.amqp.types import Array, Int32, Timestamp, UInt
from pairbus.errors import ProtocolError
from pairbus.servicebus import annotations, management
from pairbus.servicebus.entity_paths import management_path
from pairbus.servicebus.management import COMPLETED

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DeferredMessage:
    """A message that was received by its sequence number. `lock_token` is None if it is settled."""

    payload: bytes
    lock_token: bytes | None


class Management:
    """Management operations of one queue, topic or subscription.

    Several settlements can be in flight: call `post_settle` for each, then `wait`.
    """

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
        """Return encoded messages from a sequence number on, without locking or removing them."""
        body: dict[str, Any] = {
            "from-sequence-number": from_sequence_number,
            "message-count": Int32(count),
        }
        if session_id is not None:
            body["session-id"] = session_id
        response = self._request(management.PEEK_MESSAGE, body, timeout_s)
        return [_payload(entry) for entry in _messages(response)]

    def post_settle(
        self,
        lock_tokens: Iterable[bytes],
        status: str = COMPLETED,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties_to_modify: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Response:
        """Send a request to settle messages by their lock tokens, which are the tags of their
        deliveries. The messages may have been received over another connection.
        """
        deadline = self.client.deadline(timeout_s)
        body: dict[str, Any] = {
            "disposition-status": status,
            "lock-tokens": encode_lock_tokens(lock_tokens),
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
        """Wait until all responses are done. Then call `response.raise_for_status` for each."""
        self._requests.wait(list(responses), self.client.deadline(timeout_s))

    def settle(self, lock_tokens: Iterable[bytes], status: str = COMPLETED, **options: Any) -> None:
        """Settle messages, and wait for the response. Raises LockLost if a lock was lost."""
        deadline = self.client.deadline(options.get("timeout_s"))
        response = self.post_settle(lock_tokens, status, **options)
        self._requests.wait([response], deadline)
        response.raise_for_status(f"settling on {self.path!r} failed")

    def renew_locks(
        self, lock_tokens: Iterable[bytes], *, timeout_s: float | None = None
    ) -> list[Timestamp]:
        """Renew the locks of messages, and return when each lock expires."""
        body = {"lock-tokens": encode_lock_tokens(lock_tokens)}
        response = self._request(management.RENEW_LOCK, body, timeout_s)
        return _items(response, "expirations", Timestamp)

    def schedule(self, messages: Iterable[bytes], *, timeout_s: float | None = None) -> list[int]:
        """Schedule encoded messages, and return their sequence numbers.

        Each message has the annotation `x-opt-scheduled-enqueue-time`.
        """
        body = {"messages": [_schedule_entry(payload) for payload in messages]}
        response = self._request(management.SCHEDULE_MESSAGE, body, timeout_s)
        return _items(response, "sequence-numbers", int)

    def cancel(self, sequence_numbers: Iterable[int], *, timeout_s: float | None = None) -> None:
        """Cancel scheduled messages. Raises MessageNotFound if one no longer exists."""
        body = {"sequence-numbers": Array(int, tuple(sequence_numbers))}
        self._request(management.CANCEL_SCHEDULED_MESSAGE, body, timeout_s)

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
        response = self._request(management.RECEIVE_BY_SEQUENCE_NUMBER, body, timeout_s)
        return [_deferred_message(entry) for entry in _messages(response)]

    def get_session_state(self, session_id: str, *, timeout_s: float | None = None) -> bytes | None:
        body = {"session-id": session_id}
        response = self._request(management.GET_SESSION_STATE, body, timeout_s)
        state = response.get("session-state") if isinstance(response, dict) else None
        return state if isinstance(state, bytes) else None

    def set_session_state(
        self, session_id: str, state: bytes | None, *, timeout_s: float | None = None
    ) -> None:
        body = {"session-id": session_id, "session-state": state}
        self._request(management.SET_SESSION_STATE, body, timeout_s)

    def renew_session_lock(self, session_id: str, *, timeout_s: float | None = None) -> Timestamp:
        """Renew the lock of a session, and return when it expires."""
        body = {"session-id": session_id}
        response = self._request(management.RENEW_SESSION_LOCK, body, timeout_s)
        expiration = response.get("expiration") if isinstance(response, dict) else None
        if not isinstance(expiration, Timestamp):
            raise ProtocolError(f"{self.path!r} renewed a session lock without an expiration")
        return expiration

    def _post(self, operation: str, body: dict[str, Any], deadline: float) -> Response:
        milliseconds = max(int((deadline - self.client.now()) * 1000), 1)
        return self._requests.post(
            {"operation": operation, management.SERVER_TIMEOUT: UInt(milliseconds)},
            body,
            deadline,
        )

    def _request(self, operation: str, body: dict[str, Any], timeout_s: float | None) -> Any:
        deadline = self.client.deadline(timeout_s)
        response = self._post(operation, body, deadline)
        self._requests.wait([response], deadline)
        response.raise_for_status(f"the request {operation!r} to {self.path!r} failed")
        return response.body


def _schedule_entry(payload: bytes) -> dict[str, Any]:
    """Return the entry of a `schedule-message` request for an encoded message."""
    message = Message.parse(payload)
    properties = message.read_properties()
    fields = {
        "message-id": None if properties.message_id is None else str(properties.message_id),
        "session-id": properties.group_id,
        "partition-key": message.read_message_annotations().get(annotations.PARTITION_KEY),
    }
    return {name: value for name, value in fields.items() if value is not None} | {
        "message": payload
    }


def _items(response: Any, key: str, item_type: type[Item]) -> list[Item]:
    """Return a list or array of a response. Raises ProtocolError if it has the wrong type."""
    value = response.get(key) if isinstance(response, dict) else None
    items = value.elements if isinstance(value, Array) else value
    if not isinstance(items, list | tuple) or not all(isinstance(i, item_type) for i in items):
        raise ProtocolError(f"a response has no {key!r}, or {key!r} has the wrong type")
    return list(items)


def _messages(response: Any) -> list[dict[Any, Any]]:
    """Return the message entries of a response; none if it has no body (status 204)."""
    if not isinstance(response, dict) or "messages" not in response:
        return []
    return _items(response, "messages", dict)


def _payload(entry: dict[Any, Any]) -> bytes:
    payload = entry.get("message")
    if not isinstance(payload, bytes):
        raise ProtocolError("a response has a message without a payload")
    return payload


def _deferred_message(entry: dict[Any, Any]) -> DeferredMessage:
    token = entry.get("lock-token")
    if token is not None and not isinstance(token, UUID):
        raise ProtocolError("a response has a lock token that is not a uuid")
    return DeferredMessage(_payload(entry), None if token is None else token.bytes_le)
