"""Sending messages on, and settling them where they came from, in one task.

Messages of one destination go out in batches, several in flight, in their order. A batch that is
not accepted ends its destination for this task, so that no later message of a session passes one
that failed. What was accepted is completed; what cannot ever be accepted is dead-lettered; the rest
stays where it is.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from pairbus.amqp.batch import BATCH_FORMAT, batch_envelope, make_batch, size_in_batch
from pairbus.amqp.client import ClientOptions, PendingDelivery, Sender
from pairbus.amqp.client.request_response import Response
from pairbus.errors import (
    AmqpError,
    Busy,
    NotAuthorized,
    QuotaExceeded,
    Refused,
    Unavailable,
)
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from pairbus.servicebus.management import ABANDONED, COMPLETED, DEAD_LETTERED
from pairbus.spark.columns import RestoredMessage
from pairbus.spark.connections import management_of, sender_of
from pairbus.syphon.usage import SyphonUsage
from pairbus.usage.operations import OperationKind

logger = logging.getLogger(__name__)

BATCH = 500
"""Messages in one delivery at most."""
WINDOW = 4
"""Deliveries in flight to one destination."""
LIMIT = MAX_MESSAGE_SIZE_STANDARD
MARGIN_MS = 5_000
"""A lock that has less left is not used: the message comes again by itself."""
SETTLED_AT_ONCE = 500
DESCRIPTION = 1000
"""Characters of a dead letter's description."""
_KINDS = {
    COMPLETED: OperationKind.COMPLETE,
    ABANDONED: OperationKind.ABANDON,
    DEAD_LETTERED: OperationKind.DEAD_LETTER,
}


@dataclass(slots=True)
class Outcome:
    """What came of a task: how many messages, by destination."""

    moved: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    dead_lettered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    """Messages that stay where they are, and are tried again."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why, by destination."""
    busy: bool = False
    unsettled: int = 0
    """Messages that were moved, and could not be completed: they come a second time."""


class _Batch:
    __slots__ = ("messages", "posted", "sessions")

    def __init__(
        self, messages: list[RestoredMessage], sessions: set[str], posted: PendingDelivery
    ) -> None:
        self.messages = messages
        self.sessions = sessions
        self.posted = posted


class _Destination:
    """One path of the primary."""

    def __init__(self, path: str, sender: Sender) -> None:
        self.path = path
        self.sender = sender
        self.waiting: list[RestoredMessage] = []
        self.size = 0
        self.in_flight: deque[_Batch] = deque()
        self.error: AmqpError | None = None
        self.late: set[str] = set()
        """Sessions of which a message was not sent: its lock was about to expire."""


class Forwarder:
    """Sends messages on. `finish` must be called in the end."""

    def __init__(
        self,
        primary: ClientOptions,
        secondary: ClientOptions | None,
        *,
        books: SyphonUsage | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._now_ms = now_ms
        self._destinations: dict[str, _Destination] = {}
        self._books = books or None
        self._settling = _Settling(secondary, self._books)
        self._in_the_way: list[RestoredMessage] = []
        self.outcome = Outcome()

    def take(self, messages: Iterable[RestoredMessage]) -> None:
        """Send these, after those that came before."""
        late = self._now_ms() + MARGIN_MS
        for message in messages:
            if message.problem is not None or message.destination is None:
                self._bury(message, message.problem or "", message.description or "")
                continue
            destination = self._destination(message.destination)
            if destination.error is not None and _for_good(destination.error):
                self._bury(message, type(destination.error).__name__, str(destination.error))
            elif destination.error is not None:
                self._leave(destination, [message])
            elif message.lock_token is not None and (
                message.locked_until < late or message.session_id in destination.late
            ):
                if message.session_id is not None:  # no later one of its session passes it
                    destination.late.add(message.session_id)
                self._leave(destination, [message])
            else:
                self._add(destination, message)

    def finish(self) -> Outcome:
        """Send what waits, wait for all answers, settle."""
        for destination in self._destinations.values():
            if destination.error is None:
                self._post(destination)
        for destination in self._destinations.values():
            while destination.in_flight:
                self._confirm(destination)
        if not self.outcome.moved:  # nobody was held up: they need not wait for their locks
            for message in self._in_the_way:
                self._settling.add(message, ABANDONED)
        self.outcome.unsettled += self._settling.finish()
        return self.outcome

    def _destination(self, path: str) -> _Destination:
        found = self._destinations.get(path)
        if found is None:
            found = self._destinations[path] = _Destination(path, sender_of(self._primary, path))
            try:
                found.sender.open()
            except AmqpError as exc:
                found.error = exc
        return found

    def _add(self, destination: _Destination, message: RestoredMessage) -> None:
        size = size_in_batch(len(message.payload))
        limit = destination.sender.max_message_size or LIMIT
        # Some room for the envelope, which has the id, session and partition key of the first.
        if len(destination.waiting) >= BATCH or destination.size + size > limit - 1024:
            self._post(destination)
            if destination.error is not None:
                self._leave(destination, [message])
                return
        destination.waiting.append(message)
        destination.size += size

    def _post(self, destination: _Destination) -> None:
        """Have the messages that wait sent as one delivery."""
        messages, destination.waiting, destination.size = destination.waiting, [], 0
        if not messages:
            return
        sessions = {one.session_id for one in messages if one.session_id is not None}
        while destination.in_flight and (
            len(destination.in_flight) >= WINDOW
            or any(sessions & batch.sessions for batch in destination.in_flight)
        ):
            self._confirm(destination)
        if destination.error is not None:
            self._leave(destination, messages)
            return
        payloads = [one.payload for one in messages]
        try:
            if len(payloads) == 1:
                posted = destination.sender.post(payloads[0])
            else:
                payload = make_batch(payloads, batch_envelope(payloads[0]))
                posted = destination.sender.post(payload, message_format=BATCH_FORMAT)
        except AmqpError as exc:
            self._note(destination, messages, answered=False)
            self._failed(destination, messages, exc)
        else:
            destination.in_flight.append(_Batch(messages, sessions, posted))

    def _confirm(self, destination: _Destination) -> None:
        """Wait for the oldest delivery in flight."""
        batch = destination.in_flight.popleft()
        try:
            destination.sender.wait([batch.posted])
        except AmqpError as exc:
            batch.posted.error = batch.posted.error or exc
        if batch.posted.error is not None:
            self._note(destination, batch.messages, answered=False)
            self._failed(destination, batch.messages, batch.posted.error)
            return
        self._arrived(destination, batch.messages)

    def _arrived(self, destination: _Destination, messages: list[RestoredMessage]) -> None:
        self._note(destination, messages, answered=True)
        self.outcome.moved[destination.path] += len(messages)
        for message in messages:
            self.outcome.bytes += len(message.payload)
            self._settling.add(message, COMPLETED)

    def _note(
        self, destination: _Destination, messages: list[RestoredMessage], *, answered: bool
    ) -> None:
        if self._books is not None:
            sizes = [len(message.payload) for message in messages]
            self._books.add(OperationKind.SEND, destination.path, sizes, answered=answered)

    def _failed(
        self, destination: _Destination, messages: list[RestoredMessage], error: AmqpError
    ) -> None:
        if _for_good(error):
            if len(messages) > 1:
                self._one_by_one(destination, messages)
            else:
                self._bury(messages[0], type(error).__name__, str(error))
            return
        destination.error = error
        self.outcome.busy = self.outcome.busy or isinstance(error, Busy)
        self.outcome.errors[destination.path] = str(error)
        self._leave(destination, messages)
        waiting, destination.waiting, destination.size = destination.waiting, [], 0
        self._leave(destination, waiting)

    def _one_by_one(self, destination: _Destination, messages: list[RestoredMessage]) -> None:
        """One of a batch was refused for good, and took the others with it."""
        for place, message in enumerate(messages):
            try:
                destination.sender.send(message.payload)
            except AmqpError as exc:
                self._note(destination, [message], answered=False)
                self._failed(destination, [message], exc)
                if destination.error is not None:
                    self._leave(destination, messages[place + 1 :])
                    return
            else:
                self._arrived(destination, [message])

    def _leave(self, destination: _Destination, messages: list[RestoredMessage]) -> None:
        """These stay. Those of sessions are given back, so that they keep their places; the others
        come again when their locks expire, and are out of the way until then."""
        self.outcome.left[destination.path] += len(messages)
        if destination.error is not None:
            self.outcome.errors.setdefault(destination.path, str(destination.error))
        for message in messages:
            if message.session_id is not None:
                self._settling.add(message, ABANDONED)
            else:
                self._in_the_way.append(message)

    def _bury(self, message: RestoredMessage, reason: str, description: str) -> None:
        self.outcome.dead_lettered[message.destination or ""] += 1
        self._settling.bury(message, reason, description[:DESCRIPTION])


def _for_good(error: AmqpError) -> bool:
    """Whether the same message would be refused again: it is too large, its entity is gone."""
    return isinstance(error, Refused) and not isinstance(error, NotAuthorized | QuotaExceeded)


class _Locks:
    """Locks of one queue that are to be settled in one way."""

    def __init__(self, queue: str, status: str) -> None:
        self.queue = queue
        self.status = status
        self.tokens: list[UUID] = []
        self.paths: list[str] = []
        """Where the messages are going."""


class _Settling:
    """Settlements by lock token, many in one request, answers awaited in the end."""

    def __init__(self, secondary: ClientOptions | None, books: SyphonUsage | None) -> None:
        self._secondary = secondary
        self._books = books
        self._waiting: dict[tuple[str, str], _Locks] = {}
        self._asked: list[tuple[_Locks, Response | AmqpError]] = []
        self._silence: Unavailable | None = None
        """The secondary does not answer. It is not asked again for each message: that could take
        hours, and the locks expire by themselves."""

    def add(self, message: RestoredMessage, status: str) -> None:
        if message.lock_token is None or self._secondary is None:
            return
        key = message.queue, status
        locks = self._waiting.get(key)
        if locks is None:
            locks = self._waiting[key] = _Locks(message.queue, status)
        locks.tokens.append(UUID(bytes_le=message.lock_token))
        locks.paths.append(message.destination or "")
        if len(locks.tokens) >= SETTLED_AT_ONCE:
            self._ask(self._waiting.pop(key))

    def _ask(self, locks: _Locks) -> None:
        assert self._secondary is not None
        answer: Response | AmqpError
        if self._silence is not None:
            answer = self._silence
        else:
            try:
                management = management_of(self._secondary, locks.queue)
                answer = management.post_settle(locks.tokens, locks.status)
            except AmqpError as exc:
                answer = exc
                self._listen(exc)
        self._asked.append((locks, answer))

    def _listen(self, error: AmqpError) -> None:
        if isinstance(error, Unavailable):
            self._silence = error

    def bury(self, message: RestoredMessage, reason: str, description: str) -> None:
        if message.lock_token is None or self._secondary is None or self._silence is not None:
            return
        token = UUID(bytes_le=message.lock_token)
        try:
            management_of(self._secondary, message.queue).settle(
                [token], DEAD_LETTERED, reason=reason, description=description
            )
        except AmqpError as exc:
            self._listen(exc)
            self._note(DEAD_LETTERED, [message.destination or ""], answered=False)
            logger.warning("%s: a message could not be dead-lettered: %s", message.queue, exc)
        else:
            self._note(DEAD_LETTERED, [message.destination or ""])

    def finish(self) -> int:
        """Wait for the answers. How many completions failed."""
        for locks in self._waiting.values():
            self._ask(locks)
        self._waiting.clear()
        self._silence = None  # it may be there again
        failed = 0
        for locks, response in self._asked:
            count = self._answered(locks, response)
            if count > 0:
                logger.info("%s: %d messages could not be %s", locks.queue, count, locks.status)
            failed += count if locks.status == COMPLETED else 0
        self._asked.clear()
        return failed

    def _answered(self, locks: _Locks, response: Response | AmqpError) -> int:
        """How many of them failed."""
        assert self._secondary is not None
        if self._silence is not None:
            self._note(locks.status, locks.paths, answered=False)
            return len(locks.tokens)
        try:
            if isinstance(response, AmqpError):
                raise response
            management_of(self._secondary, locks.queue).wait([response])
            response.raise_for_status("settling")
        except AmqpError:
            # One lock that is gone fails all of a request; the connection may be a new one by now.
            return self._one_by_one(locks)
        self._note(locks.status, locks.paths)
        return 0

    def _one_by_one(self, locks: _Locks) -> int:
        assert self._secondary is not None
        management = management_of(self._secondary, locks.queue)
        try:
            responses = [management.post_settle([token], locks.status) for token in locks.tokens]
            management.wait(responses)
        except AmqpError as exc:
            self._listen(exc)
            self._note(locks.status, locks.paths, answered=False)
            return len(locks.tokens)
        failed = 0
        for response, path in zip(responses, locks.paths, strict=True):
            try:
                response.raise_for_status("settling")
            except AmqpError as exc:
                self._listen(exc)
                failed += 1
                self._note(locks.status, [path], answered=False)
            else:
                self._note(locks.status, [path])
        return failed

    def _note(self, status: str, paths: list[str], *, answered: bool = True) -> None:
        if self._books is not None:
            self._books.settled(_KINDS[status], paths, answered=answered)
