"""Planning of micro-batches of the syphon, in the driver."""

import threading
import time
from enum import Enum, auto
from typing import Any

from pairbus.errors import AmqpError, Busy
from pairbus.spark.emptiness import EmptinessCheck
from pairbus.spark.long_polls import STEP_S, LongPolls
from pairbus.spark.messages import ReceivedMessage
from pairbus.spark.plans import BatchPlan
from pairbus.spark.stream_reader import wait_for_messages
from pairbus.syphon.batch_builder import BatchBuilder
from pairbus.syphon.drain_rate import DrainRate
from pairbus.syphon.drained_check import DrainedCheck
from pairbus.syphon.dropped_messages import DroppedMessages
from pairbus.syphon.live_control import LiveControl
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.reader_status import ReaderReporter
from pairbus.syphon.status import find_problem
from pairbus.syphon.status_file import StatusFile, status_to_json
from pairbus.syphon.writer_status import WriterStatus


class NextStep(Enum):
    """The result of a step without a micro-batch."""

    AGAIN = auto()
    """There may be a micro-batch later."""
    END = auto()
    """The stream ends."""


class BacklogPlanner:
    """Plans micro-batches. It leaves out destinations that failed recently.

    With `available_now` it ends the stream when every queue is known to be empty, or when there is
    no progress.
    """

    def __init__(
        self,
        options: SyphonOptions,
        *,
        builder: BatchBuilder,
        polls: LongPolls,
        emptiness: EmptinessCheck,
        movable: EmptinessCheck,
        reporter: ReaderReporter,
        writer_status: StatusFile[WriterStatus],
        rate: DrainRate,
        control: LiveControl,
        is_filtered: bool = False,
    ) -> None:
        """`emptiness` checks for messages that are to be moved, and `movable` for those among them
        whose destination is not paused. `is_filtered`: not every message is to be moved."""
        self._wait = threading.Event().wait
        """Waits for a time: the event is never set."""
        self._stuck_after_s = options.stuck_after.total_seconds()
        self._is_filtered = is_filtered
        self._builder = builder
        self._polls = polls
        self._reporter = reporter
        self._writer_status = writer_status
        self._rate = rate
        self._control = control
        self._drained = DrainedCheck(emptiness, reporter, self._note_throttled)
        self._dropped = DroppedMessages(polls, movable, reporter, self._wait)
        self._started_at = 0.0
        self._was_reached = False

    def next_batch(self, *, available_now: bool) -> BatchPlan | None:
        """Return the next micro-batch, or None if there is none at the moment."""
        self._started_at = self._started_at or time.time()
        while not (available_now and self._is_stuck()):
            step = self._step(available_now=available_now)
            if isinstance(step, BatchPlan):
                return step
            if step is NextStep.END or not available_now:
                return None
        # While a destination fails, the locks are those of this run.
        if self._drained.not_receivable and not self._writer_status.read().errors:
            self._drained.report_remaining()
        return None

    def status(self) -> dict[str, Any]:
        """Return the status of the reader and of the writer, for the progress of the query."""
        reader, writer = self._reporter.status, self._writer_status.read()
        return {"reader": status_to_json(reader), "writer": status_to_json(writer)}

    def stop(self) -> None:
        """Close the connections."""
        self._polls.stop()
        self._drained.close()
        self._dropped.close()
        self._builder.close()

    def _step(self, *, available_now: bool) -> BatchPlan | NextStep:
        """Return a micro-batch, or wait for a moment: Spark cannot stop the query meanwhile."""
        if self._control.refresh():
            self._dropped.reset()
        if self._control.paused:
            return self._stay_paused()
        if (pause_s := self._builder.wait_s()) > 0:
            self._wait(min(pause_s, STEP_S))
            return NextStep.AGAIN
        if (step := self._pass_over_dropped(available_now=available_now)) is not None:
            return step
        if messages := wait_for_messages(self._polls, until_known=available_now):
            return self._plan(messages)
        if (error := self._polls.error) is not None:
            return self._handle_error(error)
        return self._handle_no_message(available_now=available_now)

    def _stay_paused(self) -> NextStep:
        self._polls.suspend()
        self._reporter.report(waiting=False, paused=True)
        self._wait(STEP_S)
        return NextStep.AGAIN

    def _pass_over_dropped(self, *, available_now: bool) -> NextStep | None:
        """Do not receive messages again that the filter dropped, or whose destinations are paused.
        None: there may be other messages."""
        are_paused = bool(self._control.paused_destinations)
        if not (self._is_filtered or are_paused):
            return None
        if not self._dropped.were_dropped(self._writer_status.read()):
            return None
        if available_now and not are_paused:
            return NextStep.END if self._drained.is_drained() else None
        return NextStep.AGAIN if self._dropped.wait() else None

    def _plan(self, messages: list[ReceivedMessage]) -> BatchPlan | NextStep:
        self._was_reached = True
        batch = self._builder.build(messages, waiting=self._drained.not_receivable)
        if batch is None:
            # The locks were lost meanwhile, or other messages have to be moved first.
            self._wait(STEP_S)
            return NextStep.AGAIN
        self._dropped.planned(self._writer_status.read())
        self._drained.reset_wait()
        return batch

    def _handle_error(self, error: AmqpError) -> NextStep:
        if isinstance(error, Busy):
            self._note_throttled(error)
            self._polls.wait_for_message(STEP_S)
            return NextStep.AGAIN
        self._reporter.report(waiting=self._drained.not_receivable, error=str(error))
        # A namespace that was reached before is expected to come back.
        return NextStep.AGAIN if self._was_reached else NextStep.END

    def _handle_no_message(self, *, available_now: bool) -> NextStep:
        self._was_reached = True
        if not available_now:
            self._reporter.report(waiting=self._drained.not_receivable)
        elif self._drained.is_drained():
            return NextStep.END
        else:
            self._polls.wait_for_message(self._drained.next_wait_s())
        return NextStep.AGAIN

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
