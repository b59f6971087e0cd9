"""Settlement of messages by their lock tokens, over the management link of their queue.

Settling by token works from any connection, so a task can settle what another one received.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from time import monotonic

from pairbus.amqp.client import ClientOptions
from pairbus.amqp.client.request_response import Response
from pairbus.errors import AmqpError, LockLost, Unavailable
from pairbus.servicebus.management import ABANDONED, COMPLETED, DEAD_LETTERED
from pairbus.spark.connections import management_for
from pairbus.spark.messages import RestoredMessage
from pairbus.spark.usage import UsageRecorder
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)

MAX_TOKENS = 500
"""Lock tokens of one request."""
SEND_AFTER_S = 2.0
"""The time after which a request is sent that is not full. A task that is throttled would fill it
after the locks of its first messages have expired."""
MAX_DESCRIPTION = 1000
"""Characters of the description of a dead letter."""
_KINDS = {
    COMPLETED: OperationKind.COMPLETE,
    ABANDONED: OperationKind.ABANDON,
    DEAD_LETTERED: OperationKind.DEAD_LETTER,
}


@dataclass(slots=True, eq=False)
class _SettleRequest:
    """Lock tokens of one queue that get the same disposition status, and as dead letters the same
    reason and description."""

    queue: str
    status: str
    reason: str | None = None
    description: str | None = None
    created_at: float = 0.0
    tokens: list[bytes] = field(default_factory=list)
    destinations: list[str] = field(default_factory=list)
    """The destinations of the messages, for the ledger."""
    response: Response | AmqpError | None = None
    """None: not sent yet."""


@dataclass(slots=True)
class Settlements:
    """The responses to the requests of a task."""

    failed_completions: int = 0
    dead_lettered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that were dead-lettered, by destination and reason."""
    not_dead_lettered: Counter[str] = field(default_factory=Counter)
    """Messages that could not be dead-lettered, by destination. They are delivered again."""

    def add(self, request: _SettleRequest, destinations: list[str], *, settled: bool) -> None:
        """Count messages of a request, given by their destinations."""
        if request.status == DEAD_LETTERED and settled:
            self.dead_lettered.update((each, request.reason or "") for each in destinations)
        elif request.status == DEAD_LETTERED:
            self.not_dead_lettered.update(destinations)
        elif request.status == COMPLETED and not settled:
            self.failed_completions += len(destinations)


class Settler:
    """Settles messages, many in one request, and waits for the responses in `finish`.

    Without a namespace, messages have no locks, and nothing is settled.
    """

    def __init__(
        self,
        namespace: ClientOptions | None,
        usage: UsageRecorder,
        on_dead_lettered: Callable[[], object] = lambda: None,
        *,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """`on_dead_lettered` is called when the number of dead letters in `settlements` has
        grown."""
        self._namespace = namespace
        self._usage = usage
        self._on_dead_lettered = on_dead_lettered
        self._now = now
        self._pending: dict[tuple[str, str, str | None, str | None], _SettleRequest] = {}
        self._sent: list[_SettleRequest] = []
        self.settlements = Settlements()
        """The responses so far; complete after `finish`."""
        self._unavailable: Unavailable | None = None
        """Set when the namespace does not respond. Waiting for a timeout for each further request
        could take hours, so none is sent: the locks expire by themselves."""

    def can_settle(self, message: RestoredMessage) -> bool:
        """Return True if a message has a lock that can be settled."""
        return message.lock_token is not None and self._namespace is not None

    def add(self, messages: Sequence[RestoredMessage], status: str) -> None:
        """Settle messages, at the latest in `finish`."""
        self._add(messages, status)

    def dead_letter(self, message: RestoredMessage, reason: str, description: str) -> None:
        """Dead-letter a message, at the latest in `finish`. Messages with the same reason and
        description share requests."""
        self._add([message], DEAD_LETTERED, reason, description[:MAX_DESCRIPTION])

    def finish(self) -> int:
        """Send what is pending, wait for all responses, and return how many completions failed."""
        for request in self._pending.values():
            self._send(request)
        self._pending.clear()
        self._unavailable = None  # the namespace may respond again
        # The dead letters first: they are to be known if the task is killed now.
        for request in sorted(self._sent, key=lambda request: request.status != DEAD_LETTERED):
            self._wait(request)
        self._sent.clear()
        return self.settlements.failed_completions

    def _add(
        self,
        messages: Sequence[RestoredMessage],
        status: str,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        if self._namespace is None:
            return
        now = self._now()
        for queue, group in groupby(messages, attrgetter("queue")):
            locks = [
                (message.lock_token, message.destination or "")
                for message in group
                if message.lock_token is not None
            ]
            key = queue, status, reason, description
            while locks:
                request = self._pending.setdefault(key, _SettleRequest(*key, now))
                free = MAX_TOKENS - len(request.tokens)
                request.tokens += [token for token, _ in locks[:free]]
                request.destinations += [destination for _, destination in locks[:free]]
                del locks[:free]
                if len(request.tokens) == MAX_TOKENS:
                    self._send_now(self._pending.pop(key))
        for key, request in list(self._pending.items()):
            if now - request.created_at >= SEND_AFTER_S:
                self._send_now(self._pending.pop(key))

    def _send_now(self, request: _SettleRequest) -> None:
        self._send(request)
        if request.status == DEAD_LETTERED and isinstance(request.response, Response):
            self._sent.remove(request)
            self._wait(request)

    def _send(self, request: _SettleRequest) -> None:
        if self._unavailable is not None:
            request.response = self._unavailable
        else:
            try:
                request.response = self._post(request, request.tokens)
            except AmqpError as exc:
                request.response = exc
                self._note_error(exc)
        self._sent.append(request)

    def _post(self, request: _SettleRequest, tokens: list[bytes]) -> Response:
        assert self._namespace is not None
        return management_for(self._namespace, request.queue).post_settle(
            tokens, request.status, reason=request.reason, description=request.description
        )

    def _wait(self, request: _SettleRequest) -> None:
        """Wait for the response to a request."""
        assert self._namespace is not None
        if self._unavailable is not None:
            self._count(request, request.destinations, self._unavailable)
            return
        response = request.response
        assert response is not None
        try:
            if isinstance(response, AmqpError):
                raise response
            management_for(self._namespace, request.queue).wait([response])
            response.raise_for_status("settling")
        except AmqpError as exc:
            # One lost lock fails the whole request; or the connection was lost and is a new one.
            self._settle_individually(request, exc)
        else:
            self._count(request, request.destinations)

    def _settle_individually(self, request: _SettleRequest, error: AmqpError) -> None:
        """Settle each message with a separate request, after one for all of them failed.

        A dead letter whose lock is gone counts if the answer was lost: most likely it is one. If
        its lock had expired instead, it is delivered again and counts twice."""
        may_be_settled = request.status == DEAD_LETTERED and isinstance(error, Unavailable)
        assert self._namespace is not None
        try:
            responses = [self._post(request, [token]) for token in request.tokens]
            management_for(self._namespace, request.queue).wait(responses)
        except AmqpError as exc:
            self._note_error(exc)
            self._count(request, request.destinations, exc)
            return
        for response, destination in zip(responses, request.destinations, strict=True):
            try:
                response.raise_for_status("settling")
            except AmqpError as exc:
                self._note_error(exc)
                is_settled = may_be_settled and isinstance(exc, LockLost)
                self._count(request, [destination], None if is_settled else exc)
            else:
                self._count(request, [destination])

    def _note_error(self, error: AmqpError) -> None:
        if isinstance(error, Unavailable):
            self._unavailable = error

    def _count(
        self, request: _SettleRequest, destinations: list[str], error: AmqpError | None = None
    ) -> None:
        """Count messages that were settled, or were not because of an error."""
        self.settlements.add(request, destinations, settled=error is None)
        if error is None and request.status == DEAD_LETTERED:
            self._on_dead_lettered()
        if error is not None and request.status == DEAD_LETTERED:
            logger.warning(
                "%s: %d messages could not be dead-lettered: %s",
                request.queue,
                len(destinations),
                error,
            )
        if self._usage.enabled:
            self._usage.add_settlements(
                _KINDS[request.status], destinations, answered=error is None
            )
