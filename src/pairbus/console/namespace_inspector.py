"""Inspects the namespaces of a pairing: availability, counts of the backlog queues, and samples of
their messages.

With the Manage right one request lists all queues with their counts. Without it, messages of each
queue are peeked.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from pairbus.amqp.client import Client
from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import connected, peek
from pairbus.backlog.probe import probe_namespaces
from pairbus.backlog.target import InspectionTarget
from pairbus.console.estimates import (
    MessageEstimate,
    QueueSample,
    changed_counts,
    estimate,
    sample_positions,
)
from pairbus.console.inspection import NamespaceInspection
from pairbus.console.operations import CountedOperations
from pairbus.console.outage import SAMPLE_INTERVAL_S
from pairbus.errors import AmqpError, EntityNotFound, PairbusError
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.backlog_paths import backlog_index, backlog_path, backlog_prefix
from pairbus.spark.usage import UsageRecorder

SAMPLE_SIZE: Final = 50
"""Messages of a queue that are peeked for a sample."""
MAX_SAMPLE_BYTES: Final = 2 * 2**20
"""The approximate size of a sample. Messages can have 100 MB."""

_Samples = dict[str, tuple[BacklogMessage, ...]]


class NamespaceInspector:
    """Inspects a pairing again and again. Samples are kept while the counts do not change."""

    def __init__(
        self,
        target: InspectionTarget,
        usage: UsageRecorder,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._usage = usage
        self._now = now
        self._name = target.known_primary_name()
        self._sampled_at = -SAMPLE_INTERVAL_S
        self._samples: dict[bool, _Samples] = {False: {}, True: {}}
        """By True for dead letters, then by queue."""
        self._sampled_counts: dict[bool, dict[str, int]] = {False: {}, True: {}}
        self.counting = 0
        """Billed operations of the last inspection, without samples."""
        self.sampling: int | None = 0
        """Billed operations of its samples. None: earlier samples were kept."""

    def inspect(self, *, resample: bool = False) -> NamespaceInspection:
        """Inspect the namespaces. Errors are part of the result. `resample`: messages were moved,
        so queues that changed are sampled before it is time."""
        if resample:
            self._sampled_at = -SAMPLE_INTERVAL_S
        operations, samples = CountedOperations(self._usage), CountedOperations(self._usage)
        self.counting, self.sampling = 0, 0
        time_ms = int(self._now() * 1000)
        target = self._target
        namespaces = {"secondary": (target.secondary, target.backlog_queues[0])}
        if target.primary is not None:
            namespaces = {"primary": (target.primary, ""), **namespaces}
        probes = probe_namespaces(namespaces)
        if not probes["secondary"].available:
            return NamespaceInspection(time_ms=time_ms, probes=probes)
        has_kept = False
        try:
            with connected(target.secondary) as client:
                backlog = self._count(client, operations)
                has_kept = self._take_samples(client, backlog, samples)
                backlog = self._with_ages(backlog)
        except PairbusError as exc:
            problem = _text(exc)
            path = target.backlog_queues[0]
            backlog = BacklogContents(
                queues=(QueueContents(path=path, index=0, problem=problem),),
                expected=target.backlog_queue_count,
            )
        finally:
            operations.flush()
            self.counting = operations.count
            self.sampling = None if has_kept and not samples.count else samples.count
        destinations, destinations_estimated = self._estimate(backlog, dead_letters=False)
        dead_letters, dead_letters_estimated = self._estimate(backlog, dead_letters=True)
        return NamespaceInspection(
            time_ms=time_ms,
            probes=probes,
            backlog=backlog,
            destinations=destinations,
            dead_letters=dead_letters,
            estimated=destinations_estimated or dead_letters_estimated,
        )

    def _count(self, client: Client, operations: CountedOperations) -> BacklogContents:
        expected = self._target.backlog_queue_count
        try:
            with AdministrationClient(
                self._target.secondary.administration(),
                on_request=lambda _, answered: operations.add_request(answered),
            ) as administration:
                listed = administration.list_queues(backlog_prefix(self._name))
        except AmqpError as exc:
            queues = tuple(self._peek_queues(client, operations))
            return BacklogContents(
                queues=queues,
                expected=expected,
                counting_error=exc.description,
                listing_error=exc.description,
                searched_to=expected - 1,
            )
        contents = {}
        for queue in listed:
            index = backlog_index(self._name, queue.path)
            if index is not None:
                contents[index] = QueueContents(
                    path=queue.path,
                    index=index,
                    messages=queue.active_message_count,
                    dead_lettered=queue.dead_letter_message_count,
                    size=queue.size_in_bytes,
                )
        for index in range(expected):
            missing = QueueContents(path=backlog_path(self._name, index), index=index, exists=False)
            contents.setdefault(index, missing)
        return BacklogContents(
            queues=tuple(queue for _, queue in sorted(contents.items())), expected=expected
        )

    def _peek_queues(
        self, client: Client, operations: CountedOperations
    ) -> Iterator[QueueContents]:
        """Yield the expected queues, with lower bounds of their counts."""
        for index, path in enumerate(self._target.backlog_queues):
            try:
                active, dead = (
                    self._sample(client, path, SAMPLE_SIZE, SAMPLE_SIZE, operations, dead_letters)
                    for dead_letters in (False, True)
                )
            except EntityNotFound:
                yield QueueContents(path=path, index=index, exists=False)
                continue
            self._samples[False][path], self._samples[True][path] = active, dead
            yield QueueContents(
                path=path,
                index=index,
                messages=len(active),
                dead_lettered=len(dead),
                more_messages=len(active) >= SAMPLE_SIZE,
                more_dead_lettered=len(dead) >= SAMPLE_SIZE,
                oldest_ms=_oldest(active),
            )

    def _take_samples(
        self, client: Client, backlog: BacklogContents, operations: CountedOperations
    ) -> bool:
        """Sample queues that changed. Return True if earlier samples are kept."""
        if backlog.counting_error is not None:
            return False  # the messages were peeked
        is_due = self._now() - self._sampled_at >= SAMPLE_INTERVAL_S
        has_kept = False
        for dead_letters, samples in self._samples.items():
            counts = _counts(backlog, dead_letters=dead_letters)
            changed = changed_counts(self._sampled_counts[dead_letters], counts)
            for queue in backlog.queues:
                count = counts.get(queue.path, 0)
                if not count:
                    samples.pop(queue.path, None)
                elif queue.path not in samples or (is_due and queue.path in changed):
                    limit = _sample_limit(queue)
                    samples[queue.path] = self._sample(
                        client, queue.path, count, limit, operations, dead_letters
                    )
                    self._sampled_counts[dead_letters][queue.path] = count
                else:
                    has_kept = True
        if is_due:
            self._sampled_at = self._now()
        return has_kept

    def _sample(
        self,
        client: Client,
        path: str,
        total: int,
        limit: int,
        operations: CountedOperations,
        dead_letters: bool,
    ) -> tuple[BacklogMessage, ...]:
        """Peek at some messages. Payloads are not kept."""
        request = partial(
            peek,
            client,
            path,
            dead_letters=dead_letters,
            on_peek=partial(operations.add_peek, path),
        )
        messages: dict[int | None, BacklogMessage] = {}

        def take(first: int, count: int) -> None:
            for batch in request(from_sequence=first, count=count):
                for message in batch:
                    messages[message.sequence_number] = replace(
                        message, payload=b"", application_properties={}
                    )

        places = list(sample_positions(1, total, limit))
        take(*places[0])
        first = min((number for number in messages if number is not None), default=1)
        for position, count in places[1:]:
            take(first - 1 + position, count)
        return tuple(messages.values())

    def _with_ages(self, backlog: BacklogContents) -> BacklogContents:
        """Add the time of the oldest message, which is the first one of each sample."""
        queues = tuple(
            replace(queue, oldest_ms=_oldest(self._samples[False].get(queue.path, ())))
            for queue in backlog.queues
        )
        return replace(backlog, queues=queues)

    def _estimate(
        self, backlog: BacklogContents, *, dead_letters: bool
    ) -> tuple[tuple[MessageEstimate, ...], bool]:
        counts = _counts(backlog, dead_letters=dead_letters)
        samples = [
            QueueSample(messages, counts[path])
            for path, messages in self._samples[dead_letters].items()
            if counts.get(path)
        ]
        more = backlog.more_dead_lettered if dead_letters else backlog.more_messages
        incomplete = more or not all(sample.complete for sample in samples)
        return tuple(estimate(samples, by_reason=dead_letters)), incomplete


def _counts(backlog: BacklogContents, *, dead_letters: bool) -> dict[str, int]:
    return {
        queue.path: (queue.dead_lettered if dead_letters else queue.messages) or 0
        for queue in backlog.queues
    }


def _sample_limit(queue: QueueContents) -> int:
    count = (queue.messages or 0) + (queue.dead_lettered or 0)
    average = (queue.size or 0) / max(1, count)
    return max(1, min(SAMPLE_SIZE, int(MAX_SAMPLE_BYTES / max(1.0, average))))


def _oldest(messages: tuple[BacklogMessage, ...]) -> int | None:
    times = [message.enqueued_ms for message in messages if message.enqueued_ms is not None]
    return min(times, default=None)


def _text(exc: PairbusError) -> str:
    return exc.description if isinstance(exc, AmqpError) else str(exc)
