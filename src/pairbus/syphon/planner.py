"""Planning of micro-batches of the syphon, in the driver."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import AmqpError, Busy
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.spark.long_polls import STEP_S, LongPolls
from pairbus.spark.messages import ReceivedMessage, destination_of, sequence_number_of
from pairbus.spark.plans import BatchPlan
from pairbus.spark.stream_reader import wait_for_messages
from pairbus.syphon.destination_rates import DestinationRates, largest_batch, limits_of_queues
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.filtered_reads import FilteredReads
from pairbus.syphon.occupied_queues import OccupiedQueues
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.pacing import MAX_HALVINGS, BlockedReadBackoff, Pacer
from pairbus.syphon.primary_probe import Admission, PrimaryProbe
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.restore import restore
from pairbus.syphon.session_peeks import DriverPeeks, session_of
from pairbus.syphon.status import find_problem
from pairbus.syphon.status_file import StatusFile, status_to_json
from pairbus.syphon.writer_status import MAX_BLOCK_S, WriterStatus

logger = logging.getLogger(__name__)

CHECK_S, MAX_CHECK_S = 1.0, 5.0
"""The interval between two checks whether the queues are empty. It doubles up to the maximum. A
message whose lock ends arrives through the long poll, whatever the interval."""
NOT_RECEIVABLE = (
    "messages are left in the backlog that cannot be received: another receiver has locked them, "
    "or they are deferred or scheduled"
)
SESSIONS_LOCKED = (
    "messages wait for older ones of their sessions, which another receiver has locked"
)


class BacklogPlanner:
    """Plans micro-batches. It leaves out destinations that failed recently.

    With `available_now` it ends the stream when every queue is known to be empty, or when there is
    no progress.
    """

    def __init__(
        self,
        options: SyphonOptions,
        *,
        polls: LongPolls,
        emptiness: EmptinessCheck,
        movable: EmptinessCheck,
        peeks: DriverPeeks,
        probe: PrimaryProbe,
        reporter: ReaderReporter,
        writer_status: StatusFile[WriterStatus],
        rate: DrainRate,
        has_credits: Callable[[], bool],
        rate_shares: int,
        control: ControlFile | None = None,
        is_filtered: bool = False,
    ) -> None:
        """`has_credits` returns True if the namespace of the backlog throttles by credits.
        `emptiness` checks for messages that are to be moved, and `movable` for those among them
        whose destination is not paused. The rate is divided among at most `rate_shares`
        tasks. `is_filtered`: not every message is to be moved."""
        self._only = options.only
        self._max_rate = options.max_rate
        self._max_rates = options.max_rates
        self._control_file = control
        self._control = Control()
        self._rates = DestinationRates()
        self._is_filtered = is_filtered
        self._filtered_reads = FilteredReads()
        self._stuck_after_s = options.stuck_after.total_seconds()
        self._polls = polls
        self._emptiness = emptiness
        self._movable = movable
        self._peeks = peeks
        self._occupied = OccupiedQueues(peeks.peek, polls.release)
        self._probe = probe
        self._reporter = reporter
        self._writer_status = writer_status
        self._rate = rate
        self._has_credits = has_credits
        self._has_planned = False
        self._rate_shares = rate_shares
        self._pacer = Pacer(options.max_messages_per_trigger, options.max_rate)
        self._blocked_reads = BlockedReadBackoff()
        self._limited_reads = BlockedReadBackoff()
        self._limited_reads.is_due(time.monotonic(), 0)  # the first one only after a while
        self._pause = threading.Event()
        """Never set."""
        self._started_at = 0.0
        self._was_reached = False
        self._not_receivable = False
        """The last check found a message that could not be received."""
        self._check_s = CHECK_S

    def next_batch(self, *, available_now: bool) -> BatchPlan | None:
        """Return the next micro-batch, or None if there is none at the moment."""
        self._started_at = self._started_at or time.time()
        while not (available_now and self._is_stuck()):
            self._read_control()
            pause_s = self._pacer.wait_s(time.monotonic())
            if self._control.paused:
                self._polls.suspend()
                self._reporter.report(waiting=False, paused=True)
                self._pause.wait(STEP_S)
            elif pause_s > 0:
                # Not for long: Spark cannot stop the query while this call lasts.
                self._pause.wait(min(pause_s, STEP_S))
            elif self._all_were_dropped(available_now=available_now):
                if available_now and not self._control.paused_destinations:
                    return None
            elif messages := wait_for_messages(self._polls, until_known=available_now):
                self._was_reached = True
                batch = self._plan(messages)
                if batch is not None:
                    self._check_s = CHECK_S
                    return batch
                # The locks were lost meanwhile, or other messages have to be moved first.
                self._pause.wait(STEP_S)
            elif isinstance(error := self._polls.error, Busy):
                self._note_throttled(error)
                self._polls.wait_for_message(STEP_S)
            elif error is not None:
                self._reporter.report(waiting=self._not_receivable, error=str(error))
                if not self._was_reached:  # otherwise the namespace is expected to come back
                    return None
            else:
                self._was_reached = True
                if available_now:
                    if self._is_drained():
                        return None
                    self._polls.wait_for_message(self._check_s)
                    self._check_s = min(2 * self._check_s, MAX_CHECK_S)
                else:
                    self._reporter.report(waiting=self._not_receivable)
            if not available_now:
                return None
        # While a destination fails, the locks are those of this run.
        if self._not_receivable and not self._writer_status.read().errors:
            self._report_remaining()
        return None

    def status(self) -> dict[str, Any]:
        """Return the status of the reader and of the writer, for the progress of the query."""
        reader, writer = self._reporter.status, self._writer_status.read()
        return {"reader": status_to_json(reader), "writer": status_to_json(writer)}

    def stop(self) -> None:
        """Close the connections."""
        self._polls.stop()
        self._emptiness.close()
        self._movable.close()
        self._peeks.close()

    def _plan(self, messages: list[ReceivedMessage]) -> BatchPlan | None:
        """Wait until a message is for a destination that is not blocked, and return a micro-batch.
        None: the locks of all messages were lost meanwhile, their destinations are blocked for
        longer, all queues are occupied, or the primary cannot be reached."""
        destinations = [destination_of(message.payload) for message in messages]
        waiting = (
            self._not_receivable
            or not self._only
            or any(path is None or path in self._only for path in destinations)
        )
        writer = self._writer_status.read()
        admission = self._probe.admission(
            time.monotonic(), moved=writer.moved.total(), failing=bool(writer.errors)
        )
        if admission is Admission.NONE:
            self._reporter.report(
                waiting=waiting, remaining=f"the primary cannot be reached: {self._probe.problem}"
            )
            return None
        ready = {message.queue: not self._is_occupied(message) for message in messages}
        if not any(ready.values()):
            self._reporter.report(waiting=waiting, remaining=SESSIONS_LOCKED)
            return None
        self._reporter.report(waiting=waiting)
        deadline = time.monotonic() + MAX_BLOCK_S
        while True:
            for message in self._polls.messages():
                if message.queue not in ready:
                    ready[message.queue] = not self._is_occupied(message)
            messages = [m for m in self._polls.messages() if ready.get(m.queue)]
            writer = self._writer_status.read()
            now = time.monotonic()
            rates = {**self._max_rates, **self._control.max_rates}
            allowances = self._rates.allowances(now, rates, writer.moved)
            exhausted = {path for path, count in allowances.items() if count == 0}
            blocked = writer.blocked(time.time()).union(
                self._control.paused_destinations, exhausted
            )
            first = {destination_of(message.payload) for message in messages}
            if not blocked or not first <= blocked:
                break
            if first <= exhausted:  # more messages for them would be received and given back
                self._reporter.report(waiting=waiting, pause_s=STEP_S)
            elif self._blocked_reads.is_due(now, writer.moved.total()):
                break
            if now >= deadline:
                return None
            self._pause.wait(STEP_S)
        if not self._has_planned:
            self._has_planned = True
            self._rate.start(time.time(), has_credits=self._has_credits())
        self._filtered_reads.planned(now, writer.removed)
        lock_s = min((message.lock_ms for message in messages), default=0) / 1000
        halvings = writer.batch_halvings(time.time())
        if admission is Admission.FEW:
            halvings = MAX_HALVINGS
        size = self._pacer.size(
            now,
            writer.rate,
            halvings,
            lock_s=lock_s,
            left=writer.left.total() > 0,
            limit=self._rate.batch_rate(time.time()),
        )
        self._reporter.report(waiting=waiting, pause_s=self._pacer.wait_s(now))
        first_messages = self._polls.take({message.queue for message in messages})
        if not first_messages:
            return None
        heads = {queue: destination_of(m.payload) for queue, m in first_messages.items()}
        limits = limits_of_queues(allowances, heads)
        largest = largest_batch(limits, heads)
        if largest is not None:
            # Messages for other destinations may be behind those that are limited.
            others = sum(n for path, n in writer.moved.items() if path not in rates)
            if not self._limited_reads.is_due(now, others):
                size = min(size, largest)
        rate = self._rate.plan(min(self._rate_shares, len(first_messages)))
        return BatchPlan(size, first_messages, blocked, limits, rate)

    def _is_occupied(self, message: ReceivedMessage) -> bool:
        return self._occupied.is_occupied(
            message.queue,
            sequence_number_of(message.payload),
            session_of(restore(message, None), self._only),
            lock_s=message.lock_ms / 1000,
            now=time.monotonic(),
        )

    def _read_control(self) -> None:
        """Take over what an operator has changed."""
        if self._control_file is None:
            return
        control = self._control_file.read_or_keep()
        if control != self._control:
            self._control = control
            self._filtered_reads = FilteredReads()
            self._movable.reset()
        self._pacer.set_max_rate(self._max_rate if control.max_rate is None else control.max_rate)

    def _all_were_dropped(self, *, available_now: bool) -> bool:
        """Return True while no message is known that the filter would let pass. The messages that
        it dropped are not received again meanwhile."""
        reads, writer = self._filtered_reads, self._writer_status.read()
        are_paused = bool(self._control.paused_destinations)
        if (
            not (self._is_filtered or are_paused)
            or writer.errors
            or not reads.were_dropped(writer.removed)
        ):
            return False
        if available_now and not are_paused:
            return self._is_drained()
        now = time.monotonic()
        if reads.wait_s(now) <= 0:
            try:
                if not self._movable.are_empty():
                    return False
            except AmqpError as exc:
                self._reporter.report(waiting=False, error=str(exc))
                return False
            reads.found_none(now)
        self._polls.suspend()
        self._reporter.report(waiting=False)
        self._pause.wait(min(reads.wait_s(now), STEP_S))
        return True

    def _is_stuck(self) -> bool:
        problem = find_problem(
            self._reporter.status,
            self._writer_status.read(),
            started_at=self._started_at,
            now=time.time(),
            stuck_after_s=self._stuck_after_s,
        )
        return problem is not None

    def _note_throttled(self, error: Busy) -> None:
        """Slow down. The namespace is available, so this is not an error of the backlog."""
        self._rate.note_throttled(error, time.time())
        self._reporter.report(waiting=True)

    def _is_drained(self) -> bool:
        """Peek at the queues: a message that cannot be received may be locked, by another receiver
        or because its destination failed."""
        try:
            self._not_receivable = not self._emptiness.are_empty()
        except Busy as exc:
            self._note_throttled(exc)
            return False
        except AmqpError as exc:
            self._reporter.report(waiting=self._not_receivable, error=str(exc))
            return False
        self._reporter.report(
            waiting=self._not_receivable,
            remaining=NOT_RECEIVABLE if self._not_receivable else None,
            drained=not self._not_receivable,
        )
        return not self._not_receivable

    def _report_remaining(self) -> None:
        """Count the messages that are left, to explain why the run is stuck."""
        try:
            remaining = self._emptiness.remaining()
        except AmqpError as exc:
            logger.warning("The messages that are left could not be counted: %s", exc)
        else:
            self._reporter.report(waiting=True, remaining=str(remaining))
