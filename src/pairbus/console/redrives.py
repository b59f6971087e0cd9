"""Redrives of dead letters that the console runs, each in a thread, with progress and cancel."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pairbus.backlog.dead_letter_filter import DeadLetterFilter
from pairbus.backlog.dead_letter_peek import plan_redrive
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.json_values import iso_time
from pairbus.backlog.redrive import redrive
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.console.sentence import number
from pairbus.console.text import clean, label
from pairbus.errors import AmqpError, PairbusError
from pairbus.spark.usage import UsageRecorder

logger = logging.getLogger(__name__)

MAX_RUNNING: Final = 1
"""A second redrive would lock messages of the first."""
MAX_KEPT: Final = 20
"""Redrives that the page shows. The oldest that have ended are left out."""
CLOSE_S: Final = 10.0


class RedriveRefused(PairbusError):
    """Raised when a redrive cannot be started now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """A redrive that an operator asked for."""

    source: DeadLetterSource
    choice: DeadLetterFilter
    max_rate: float | None = None
    dry_run: bool = False


@dataclass(slots=True)
class RedriveJob:
    """A redrive and its progress. The thread of the job writes it."""

    id: str
    request: RedriveRequest
    started_at: float
    cancel: threading.Event = field(default_factory=threading.Event)
    state: str = "running"
    peeked: int = 0
    total: int | None = None
    moved: int = 0
    handled: int = 0
    moving_since: float | None = None
    text: str = "Reading the dead letters."

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the job for the snapshot."""
        rate = None
        if self.state == "running" and self.moving_since is not None and now > self.moving_since:
            rate = self.handled / (now - self.moving_since)
        left = None if self.total is None else max(0, self.total - self.handled)
        request = self.request
        return {
            "id": self.id,
            "reason": _first(request.choice.reasons),
            "destination": _first(request.choice.destinations),
            "dry_run": request.dry_run,
            "started_at": iso_time(int(self.started_at * 1000)),
            "state": self.state,
            "moved": self.moved,
            "left": left,
            "total": self.total,
            "rate": None if rate is None else round(rate, 1),
            "seconds_to_go": round(left / rate, 1) if rate and left is not None else None,
            "text": self.text,
        }


class RedriveJobs:
    """Starts, cancels and lists redrives. Thread-safe."""

    def __init__(
        self,
        usage: UsageRecorder,
        *,
        on_end: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`on_end` is called in the thread of each redrive, after its end."""
        self._usage = usage
        self._on_end = on_end
        self._now = now
        self._jobs: dict[str, RedriveJob] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False

    def start(self, request: RedriveRequest) -> str:
        """Start a redrive, and return its id. Raises RedriveRefused, and ConfigurationError if it
        is unknown where the messages belong."""
        request.source.require_destinations()
        job = RedriveJob(str(uuid4()), request, self._now())
        with self._lock:
            running = sum(job.state == "running" for job in self._jobs.values())
            if running >= MAX_RUNNING:
                raise RedriveRefused("A redrive is running. Wait for its end, or cancel it.")
            if self._closed:
                raise RedriveRefused("The console is shutting down.")
            self._jobs[job.id] = job
            thread = threading.Thread(target=self._run, args=(job,), name=f"redrive {job.id}")
            self._threads[job.id] = thread
            self._forget()
        thread.start()
        return job.id

    def cancel(self, id: str) -> bool:
        """Stop a redrive after the messages that are being sent. Return False if it is unknown."""
        job = self._jobs.get(id)
        if job is None:
            return False
        job.cancel.set()
        return True

    def to_json(self, now: float) -> list[dict[str, Any]]:
        """Return all redrives, the newest first."""
        with self._lock:
            return [job.to_json(now) for job in reversed(self._jobs.values())]

    def close(self) -> None:
        """Cancel all redrives, and wait for their ends. It can be called again."""
        with self._lock:
            self._closed = True
            threads = list(self._threads.values())
            for job in self._jobs.values():
                job.cancel.set()
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _forget(self) -> None:
        ended = [id for id, job in self._jobs.items() if job.state != "running"]
        for id in ended[: max(0, len(self._jobs) - MAX_KEPT)]:
            del self._jobs[id]
            self._threads.pop(id, None)

    def _run(self, job: RedriveJob) -> None:
        try:
            self._plan_and_move(job)
        except PairbusError as exc:
            text = exc.description if isinstance(exc, AmqpError) else str(exc)
            self._end(job, "failed", f"{clean(text, 1000)} Nothing is lost.")
        except Exception as exc:
            logger.exception("A redrive of the console failed.")
            self._end(job, "failed", f"{type(exc).__name__}: {clean(str(exc))} Nothing is lost.")
        finally:
            self._on_end()

    def _plan_and_move(self, job: RedriveJob) -> None:
        request = job.request

        def on_peeked(count: int) -> None:
            job.peeked = count
            job.text = f"Reading the dead letters: {number(count)} so far."
            if job.cancel.is_set():
                raise _Cancelled

        try:
            plan = plan_redrive(
                request.source, choice=request.choice, usage=self._usage, on_peeked=on_peeked
            )
        except _Cancelled:
            self._end(job, "cancelled", "No message was moved.")
            return
        job.total = len(plan)
        if request.dry_run:
            self._end(job, "done", _describe_plan(plan))
            return
        if not len(plan):
            self._end(job, "done", "There are no such dead letters.")
            return
        job.moving_since = self._now()
        job.text = "Moving dead letters."

        def on_progress(outcome: RedriveOutcome) -> None:
            job.moved, job.handled = outcome.moved.total(), outcome.handled

        outcome = redrive(
            request.source,
            plan,
            max_rate=request.max_rate,
            usage=self._usage,
            cancel=job.cancel,
            on_progress=on_progress,
        )
        on_progress(outcome)
        if outcome.cancelled:
            self._end(job, "cancelled", _describe_outcome(outcome))
        else:
            state = "done" if outcome.finished else "failed"
            self._end(job, state, _describe_outcome(outcome))

    def _end(self, job: RedriveJob, state: str, text: str) -> None:
        job.text = text
        job.state = state


def _first(names: tuple[str, ...]) -> str | None:
    """Return the name that the page shows, or None if all are meant."""
    return label(names[0]) if names else None


class _Cancelled(Exception):
    """Ends the reading of dead letters."""


def _describe_plan(plan: RedrivePlan) -> str:
    destinations = sorted(plan.destinations.items(), key=lambda item: -item[1])
    listed = ", ".join(
        f"{number(count)} to {'an unknown path' if path is None else clean(path)}"
        for path, count in destinations[:10]
    )
    if not listed:
        return "Dry run: there are no such dead letters."
    more = len(destinations) - 10
    return f"Dry run: {listed}{f' and {more} more destinations' if more > 0 else ''}."


def _describe_outcome(outcome: RedriveOutcome) -> str:
    sentences = [f"{number(outcome.moved.total())} moved."]
    if outcome.refused:
        (destination, reason), _ = outcome.refused.most_common(1)[0]
        sentences.append(
            f"{number(outcome.refused.total())} were refused and stay dead letters, most of them "
            f"by {clean(destination)} ({clean(reason)})."
        )
    if outcome.left:
        sentences.append(f"{number(outcome.left.total())} were not tried and stay dead letters.")
    if outcome.errors:
        destination, error = next(iter(outcome.errors.items()))
        sentences.append(f"{clean(destination)}: {clean(error)}.")
    if outcome.gone:
        sentences.append(f"{number(outcome.gone)} were taken by another receiver.")
    if outcome.unsettled:
        sentences.append(
            f"{number(outcome.unsettled)} were moved and could not be completed, so they are "
            "still dead letters."
        )
    return " ".join(sentences)
