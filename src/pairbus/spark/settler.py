"""Settlement of messages by their lock tokens, over the management link of their queue.

Settling by token works from any connection, so a task can settle what another one received.
"""

import logging
from dataclasses import dataclass, field
from uuid import UUID

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.request_response import Response
from pairbus.errors import AmqpError, Unavailable
from pairbus.servicebus.management import ABANDONED, COMPLETED, DEAD_LETTERED
from pairbus.spark.connections import management_for
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)

MAX_TOKENS = 500
"""Lock tokens of one request."""
MAX_DESCRIPTION = 1000
"""Characters of the description of a dead letter."""
_KINDS = {
    COMPLETED: OperationKind.COMPLETE,
    ABANDONED: OperationKind.ABANDON,
    DEAD_LETTERED: OperationKind.DEAD_LETTER,
}


@dataclass(slots=True, eq=False)
class _SettleRequest:
    """Lock tokens of one queue that get the same disposition status."""

    queue: str
    status: str
    tokens: list[UUID] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)
    """The destinations of the messages, for the ledger."""
    response: Response | AmqpError | None = None
    """None: not sent yet."""


class Settler:
    """Settles messages, many in one request, and waits for the responses in `finish`.

    Without a namespace, messages have no locks, and nothing is settled.
    """

    def __init__(self, namespace: ClientOptions | None, usage: UsageRecorder) -> None:
        self._namespace = namespace
        self._usage = usage
        self._pending: dict[tuple[str, str], _SettleRequest] = {}
        self._sent: list[_SettleRequest] = []
        self._unavailable: Unavailable | None = None
        """Set when the namespace does not respond. Waiting for a timeout for each further request
        could take hours, so none is sent: the locks expire by themselves."""

    def can_settle(self, message: RestoredMessage) -> bool:
        """Return True if a message has a lock that can be settled."""
        return message.lock_token is not None and self._namespace is not None

    def add(self, message: RestoredMessage, status: str) -> None:
        """Settle a message, at the latest in `finish`."""
        if message.lock_token is None or self._namespace is None:
            return
        key = message.queue, status
        request = self._pending.get(key)
        if request is None:
            request = self._pending[key] = _SettleRequest(message.queue, status)
        request.tokens.append(UUID(bytes_le=message.lock_token))
        request.destinations.append(message.destination or "")
        if len(request.tokens) >= MAX_TOKENS:
            self._send(self._pending.pop(key))

    def dead_letter(self, message: RestoredMessage, reason: str, description: str) -> None:
        """Dead-letter a message at once, if it has a lock. A failure is logged, not raised."""
        if message.lock_token is None or self._namespace is None or self._unavailable is not None:
            return
        token = UUID(bytes_le=message.lock_token)
        destination = message.destination or ""
        try:
            management_for(self._namespace, message.queue).settle(
                [token], DEAD_LETTERED, reason=reason, description=description[:MAX_DESCRIPTION]
            )
        except AmqpError as exc:
            self._note_error(exc)
            self._record(DEAD_LETTERED, [destination], answered=False)
            logger.warning("%s: a message could not be dead-lettered: %s", message.queue, exc)
        else:
            self._record(DEAD_LETTERED, [destination])

    def finish(self) -> int:
        """Send what is pending, wait for all responses, and return how many completions failed."""
        for request in self._pending.values():
            self._send(request)
        self._pending.clear()
        self._unavailable = None  # the namespace may respond again
        failed_completions = 0
        for request in self._sent:
            failed = self._wait(request)
            if failed > 0:
                logger.info(
                    "%s: %d messages could not be %s", request.queue, failed, request.status
                )
            failed_completions += failed if request.status == COMPLETED else 0
        self._sent.clear()
        return failed_completions

    def _send(self, request: _SettleRequest) -> None:
        assert self._namespace is not None
        if self._unavailable is not None:
            request.response = self._unavailable
        else:
            try:
                management = management_for(self._namespace, request.queue)
                request.response = management.post_settle(request.tokens, request.status)
            except AmqpError as exc:
                request.response = exc
                self._note_error(exc)
        self._sent.append(request)

    def _wait(self, request: _SettleRequest) -> int:
        """Wait for the response to a request, and return how many of its messages failed."""
        assert self._namespace is not None
        if self._unavailable is not None:
            self._record(request.status, request.destinations, answered=False)
            return len(request.tokens)
        response = request.response
        assert response is not None
        try:
            if isinstance(response, AmqpError):
                raise response
            management_for(self._namespace, request.queue).wait([response])
            response.raise_for_status("settling")
        except AmqpError:
            # One lost lock fails the whole request; or the connection was lost and is a new one.
            return self._settle_individually(request)
        self._record(request.status, request.destinations)
        return 0

    def _settle_individually(self, request: _SettleRequest) -> int:
        """Settle each message with a separate request, and return how many failed."""
        assert self._namespace is not None
        management = management_for(self._namespace, request.queue)
        try:
            responses = [
                management.post_settle([token], request.status) for token in request.tokens
            ]
            management.wait(responses)
        except AmqpError as exc:
            self._note_error(exc)
            self._record(request.status, request.destinations, answered=False)
            return len(request.tokens)
        failed = 0
        for response, destination in zip(responses, request.destinations, strict=True):
            try:
                response.raise_for_status("settling")
            except AmqpError as exc:
                self._note_error(exc)
                failed += 1
                self._record(request.status, [destination], answered=False)
            else:
                self._record(request.status, [destination])
        return failed

    def _note_error(self, error: AmqpError) -> None:
        if isinstance(error, Unavailable):
            self._unavailable = error

    def _record(self, status: str, destinations: list[str], *, answered: bool = True) -> None:
        if self._usage.enabled:
            self._usage.add_settlements(_KINDS[status], destinations, answered=answered)
