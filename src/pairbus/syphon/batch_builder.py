"""Micro-batches of the syphon, built from the first messages of its queues."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pairbus.spark.long_polls import STEP_S, LongPolls
from pairbus.spark.messages import ReceivedMessage, destination_of, sequence_number_of
from pairbus.spark.plans import BatchPlan
from pairbus.syphon.destination_limits import DestinationLimits, Read
from pairbus.syphon.destination_rates import DestinationRates, largest_batch, limits_of_queues
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.live_control import LiveControl
from pairbus.syphon.occupied_queues import OccupiedQueues
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pacing import MAX_HALVINGS, BlockedReadBackoff, Pacer
from pairbus.syphon.primary_probe import Admission, PrimaryProbe
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.restore import restore
from pairbus.syphon.session_peeks import DriverPeeks, session_of
from pairbus.syphon.status_file import StatusFile
from pairbus.syphon.task_slots import TaskSlots
from pairbus.syphon.writer_status import MAX_BLOCK_S, WriterStatus

SESSIONS_LOCKED = (
    "messages wait for older ones of their sessions, which another receiver has locked"
)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The messages that may start a micro-batch, and the limits that apply to it."""

    now: float
    messages: list[ReceivedMessage]
    writer: WriterStatus
    limits: DestinationLimits

    @property
    def destinations(self) -> set[str | None]:
        return {destination_of(message.payload) for message in self.messages}

    @property
    def lock_s(self) -> float:
        """The duration of the shortest lock."""
        return min((message.lock_ms for message in self.messages), default=0) / 1000


class BatchBuilder:
    """Builds micro-batches, without queues and destinations that have to wait."""

    def __init__(
        self,
        options: SyphonOptions,
        *,
        polls: LongPolls,
        peeks: DriverPeeks,
        probe: PrimaryProbe,
        reporter: ReaderReporter,
        writer_status: StatusFile[WriterStatus],
        rate: DrainRate,
        has_credits: Callable[[], bool],
        slots: TaskSlots,
        control: LiveControl,
    ) -> None:
        """`has_credits` returns True if the namespace of the backlog throttles by credits."""
        self._only = options.only
        self._polls = polls
        self._peeks = peeks
        self._occupied = OccupiedQueues(peeks.peek, polls.release)
        self._probe = probe
        self._reporter = reporter
        self._writer_status = writer_status
        self._rate = rate
        self._has_credits = has_credits
        self._has_started = False
        self._slots = slots
        self._pacer = Pacer(options.max_messages_per_trigger, options.max_rate)
        self._control = control
        self._wait = threading.Event().wait
        """Waits for a time: the event is never set."""
        self._rates = DestinationRates()
        self._blocked_reads = BlockedReadBackoff()
        self._limited_reads = BlockedReadBackoff()
        self._limited_reads.is_due(time.monotonic(), 0)  # the first one only after a while

    def wait_s(self) -> float:
        """Return the time until the rate allows the next micro-batch."""
        self._pacer.set_max_rate(self._control.max_rate)
        return self._pacer.wait_s(time.monotonic())

    def build(self, messages: list[ReceivedMessage], *, waiting: bool) -> BatchPlan | None:
        """Wait until a message is for a destination that is not blocked, and return a micro-batch.
        None: the primary cannot be reached, all queues are occupied, the destinations are blocked
        for longer, or the locks of all messages were lost meanwhile. `waiting`: other messages are
        known to wait."""
        waiting = waiting or self._are_wanted(messages)
        admission = self._admission()
        if admission is Admission.NONE:
            problem = f"the primary cannot be reached: {self._probe.problem}"
            self._reporter.report(waiting=waiting, remaining=problem)
            return None
        ready = {message.queue: not self._is_occupied(message) for message in messages}
        if not any(ready.values()):
            self._reporter.report(waiting=waiting, remaining=SESSIONS_LOCKED)
            return None
        self._reporter.report(waiting=waiting)
        candidates = self._wait_for_destination(ready, waiting=waiting)
        if candidates is None:
            return None
        self._start_rate()
        size = self._size(candidates, admission)
        self._reporter.report(waiting=waiting, pause_s=self._pacer.wait_s(candidates.now))
        first_messages = self._polls.take({message.queue for message in candidates.messages})
        return self._plan(candidates, first_messages, size) if first_messages else None

    def close(self) -> None:
        """Close the connection."""
        self._peeks.close()

    def _are_wanted(self, messages: list[ReceivedMessage]) -> bool:
        destinations = {destination_of(message.payload) for message in messages}
        return not self._only or None in destinations or not destinations.isdisjoint(self._only)

    def _admission(self) -> Admission:
        writer = self._writer_status.read()
        return self._probe.admission(
            time.monotonic(), moved=writer.moved.total(), failing=bool(writer.errors)
        )

    def _is_occupied(self, message: ReceivedMessage) -> bool:
        return self._occupied.is_occupied(
            message.queue,
            sequence_number_of(message.payload),
            session_of(restore(message, None), self._only),
            lock_s=message.lock_ms / 1000,
            now=time.monotonic(),
        )

    def _wait_for_destination(self, ready: dict[str, bool], *, waiting: bool) -> _Candidates | None:
        """Wait until the queues that are ready should be read. None: it takes too long."""
        deadline = time.monotonic() + MAX_BLOCK_S
        while True:
            candidates = self._candidates(ready)
            read = candidates.limits.read(candidates.destinations)
            moved = candidates.writer.moved.total()
            if read is Read.NOW:
                return candidates
            if read is Read.SEARCH and self._blocked_reads.is_due(candidates.now, moved):
                return candidates
            if read is Read.LATER:
                self._reporter.report(waiting=waiting, pause_s=STEP_S)
            if candidates.now >= deadline:
                return None
            self._wait(STEP_S)

    def _candidates(self, ready: dict[str, bool]) -> _Candidates:
        """Return what is known now. Queues with a new message are added to `ready`."""
        for message in self._polls.messages():
            if message.queue not in ready:
                ready[message.queue] = not self._is_occupied(message)
        messages = [message for message in self._polls.messages() if ready.get(message.queue)]
        writer, now = self._writer_status.read(), time.monotonic()
        limits = DestinationLimits(
            failing=writer.blocked(time.time()),
            paused=self._control.paused_destinations,
            allowances=self._rates.allowances(now, self._control.max_rates, writer.moved),
        )
        return _Candidates(now, messages, writer, limits)

    def _start_rate(self) -> None:
        """Set the first limit, once. It waits for the answer of the namespace."""
        if not self._has_started:
            self._has_started = True
            self._rate.start(time.time(), has_credits=self._has_credits())

    def _size(self, candidates: _Candidates, admission: Admission) -> int:
        writer, now = candidates.writer, time.time()
        return self._pacer.size(
            candidates.now,
            writer.rate,
            MAX_HALVINGS if admission is Admission.FEW else writer.batch_halvings(now),
            lock_s=candidates.lock_s,
            left=writer.left.total() > 0,
            limit=self._rate.batch_rate(now),
        )

    def _plan(
        self, candidates: _Candidates, first_messages: Mapping[str, ReceivedMessage], size: int
    ) -> BatchPlan:
        allowances = candidates.limits.allowances
        heads = {queue: destination_of(m.payload) for queue, m in first_messages.items()}
        limits = limits_of_queues(allowances, heads)
        largest = largest_batch(limits, heads)
        if largest is not None:
            # Messages for other destinations may be behind those that are limited.
            moved = candidates.writer.moved.items()
            others = sum(count for path, count in moved if path not in allowances)
            if not self._limited_reads.is_due(candidates.now, others):
                size = min(size, largest)
        rate = self._rate.plan(self._slots.rate_shares(len(first_messages)))
        return BatchPlan(
            size,
            first_messages,
            candidates.limits.blocked,
            limits,
            rate,
            max_tasks=self._slots.max_tasks(is_paced=rate.is_paced(time.time())),
        )
