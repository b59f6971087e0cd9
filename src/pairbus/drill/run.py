"""The drill, stage by stage."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient

from pairbus.drill.collect import CollectedMessages, collect
from pairbus.drill.costs import OutageTimes, drill_cost, forecast_counts
from pairbus.drill.environments import Environment
from pairbus.drill.plan import DrillOptions
from pairbus.drill.reconciliation import reconcile
from pairbus.drill.result import DrillResult
from pairbus.drill.senders import SendCounts, Senders
from pairbus.errors import PairbusError, StateError
from pairbus.events import Event, PathStatus, Pinged, StateChanged
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.client import PairedClient, pair_namespace

RETRIES: dict[str, Any] = {
    "retry_total": 1,
    "retry_backoff_factor": 0.1,
    "retry_backoff_max": 1,
}
"""Few retries of the SDK's own, to see it sooner: by default they take 11 to 20 seconds."""
LOOK_S = 0.1
COUNT_S = 1.0
PATIENCE_S = 90.0
"""How long a stage may take without any progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSnapshot:
    """A drill now, for whoever watches."""

    states: dict[str, PathStatus]
    lines: dict[str, SendCounts]
    pings: int
    syphon: Any
    """The status of the syphon, once it runs."""
    left: int | None
    """What the backlog holds, once the syphon runs and it is known."""


class Drill:
    """An outage of the primary while an application sends. `tell` hears each thing that happens, as
    a sentence."""

    def __init__(
        self, site: Environment, options: DrillOptions, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._site = site
        self._options = options
        self._ledger = folder / "ledger"
        self._tell = tell
        self._pings = 0
        self._moments: dict[str, datetime] = {}
        self._bus: PairedClient | None = None
        self._fleet: Senders | None = None
        self._syphon: Any = None
        self._left: int | None = None
        self._pause = threading.Event()

    def snapshot(self) -> DrillSnapshot:
        bus, fleet, syphon = self._bus, self._fleet, self._syphon
        return DrillSnapshot(
            states={} if bus is None else {k: v.status for k, v in bus.status().paths.items()},
            lines={} if fleet is None else fleet.lines,
            pings=self._pings,
            syphon=None if syphon is None else syphon.status(),
            left=self._left,
        )

    def run(self) -> DrillResult:
        """All of it. Whatever happens, what the drill has made is removed again. Raises
        PairbusError where it could not begin."""
        try:
            return self._run()
        except AzureError as exc:
            raise StateError(str(exc).splitlines()[0]) from exc

    def _run(self) -> DrillResult:
        queues: tuple[str, ...] = ()
        with contextlib.ExitStack() as made:
            made.callback(lambda: self._clean_up(queues))
            self._tell(self._site.open())
            client = made.enter_context(
                ServiceBusClient.from_connection_string(self._site.primary, **RETRIES)
            )
            options = self._pairing_options()
            bus = self._bus = made.enter_context(pair_namespace(client, options))
            queues = bus.backlog_queues
            self._tell(
                f"Paired: {len(queues)} backlog queues, failover after "
                f"{_seconds(self._options.failover_interval)}, a ping every "
                f"{_seconds(self._options.ping_primary_interval)}, failback "
                f"{self._options.failback}."
            )
            fleet = self._fleet = Senders(bus, self._site.entities, self._options)
            made.callback(fleet.stop)
            problem = None
            with _Spark(self._ledger.with_name("spark.log")) as spark:
                try:
                    self._stages(bus, fleet, spark)
                except PairbusError as exc:
                    problem = str(exc)
                    self._tell(f"The drill cannot go on: {problem}")
                    with contextlib.suppress(Exception):
                        self._end_outage()
                fleet.stop()
                self._stop_syphon()
            if fleet.failures and problem is None:
                problem = f"a sender ended: {fleet.failures[0]}"
            self._tell("The senders have stopped. Everything is received.")
            found = self._collect(fleet, queues)
            primary = bus.status().primary
            bus.close()  # the ledger is whole
            moved = 0 if self._syphon is None else self._syphon.status().moved.total()
            times = OutageTimes.of(self._moments, moved, self._options)
            foretold = forecast_counts(self._options, options, len(self._site.entities), times)
            cost = drill_cost(foretold, self._ledger, primary)
            return DrillResult(
                reckoning=reconcile(
                    fleet.sent,
                    delivered=found.delivered,
                    in_backlog=found.in_backlog,
                    dead_lettered=found.dead_lettered,
                ),
                reasons=found.dead_lettered,
                through_backlog=sum(line.stored for line in fleet.lines.values()),
                errors=sum(line.errors for line in fleet.lines.values()),
                pings=self._pings,
                moments=dict(self._moments),
                cost=cost,
                problem=problem,
            )

    def _clean_up(self, queues: tuple[str, ...]) -> None:
        if left := self._site.close(queues):
            self._tell(f"These could not be removed; do so by hand: {', '.join(left)}")

    def _pairing_options(self) -> SendAvailabilityOptions:
        return SendAvailabilityOptions(
            secondary=self._site.secondary,
            primary_name=self._site.primary_name,
            backlog_queue_count=self._options.backlog_queue_count,
            failover_interval=self._options.failover_interval,
            ping_primary_interval=self._options.ping_primary_interval,
            failback=self._options.failback,
            check_duplicate_detection=False,  # they all have it
            ledger=self._ledger,
            on_event=self._heed,
        )

    # The stages.

    def _stages(self, bus: PairedClient, fleet: Senders, spark: "_Spark") -> None:
        where = ", ".join(f"{one.path} ({one.shape.value})" for one in self._site.entities)
        fleet.start()
        self._tell(
            f"{self._options.senders} senders send {self._options.rate:g} messages a second to "
            f"{where}."
        )
        self._pause.wait(self._options.before.total_seconds())
        self._tell(self._site.break_down())
        self._note("down")
        spark.start()  # it takes a while, and the outage is long enough for it
        self._wait(lambda: self._are(bus, PathStatus.FAILOVER), "failover of every path")
        self._note("failover")
        self._tell("Every path is in failover: what is sent now goes to the backlog.")
        gone = (datetime.now(UTC) - self._moments["down"]).total_seconds()
        self._pause.wait(max(0.0, self._options.outage.total_seconds() - gone))
        self._end_outage()
        healthy = (PathStatus.HEALTHY, PathStatus.DRAINING)
        self._wait(lambda: self._are(bus, *healthy), "a ping to get through")
        self._note("pinged")
        self._drain(bus, spark)
        self._pause.wait(self._options.after.total_seconds())

    def _end_outage(self) -> None:
        if "down" in self._moments and "back" not in self._moments:
            self._tell(self._site.bring_back())
            self._note("back")

    def _drain(self, bus: PairedClient, spark: "_Spark") -> None:
        from pairbus.syphon.counts import backlog_size
        from pairbus.syphon.options import SyphonOptions
        from pairbus.syphon.query import Syphon

        spark.wait()
        options: Any = {"primary": self._site.primary, "secondary": self._site.secondary}
        syphon = Syphon(
            SyphonOptions(
                **options,
                primary_name=self._site.primary_name,
                backlog_queue_count=self._options.backlog_queue_count,
                ledger=str(self._ledger),
            )
        )
        syphon.start()
        self._syphon = syphon
        self._note("drain")
        self._tell("The syphon runs on Spark, and moves the backlog to where it was going.")
        best: tuple[int, int] | None = None
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._left = backlog_size(syphon.options.secondary, syphon.options.backlog_queues)
            if self._left == 0 and self._are(bus, PathStatus.HEALTHY):
                break
            status = syphon.status()
            if status.failure is not None:
                raise StateError(f"the syphon failed: {status.failure.splitlines()[0]}")
            progress = status.moved.total(), -(self._left or 0)
            if best is None or progress > best:
                best, deadline = progress, time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                raise StateError(f"there is no progress: {status.problem or 'messages are left'}")
            self._pause.wait(COUNT_S)
        self._note("drained")
        moved = syphon.status().moved.total()
        self._tell(f"The backlog is empty: {moved:,} messages were moved. Every path is healthy.")

    def _stop_syphon(self) -> None:
        if self._syphon is not None:
            self._syphon.stop()

    def _collect(self, fleet: Senders, queues: tuple[str, ...]) -> CollectedMessages:
        site = self._site
        return collect(site.primary, site.secondary, site.entities, fleet.sessions, queues)

    # Things that happen meanwhile.

    def _heed(self, event: Event) -> None:
        match event:
            case StateChanged(path=path, from_state=was, to_state=now):
                self._tell(f"{path}: {was.value} → {now.value}")
            case Pinged():
                self._pings += 1

    def _are(self, bus: PairedClient, *states: PathStatus) -> bool:
        """Whether every path is in one of these states."""
        paths = bus.status().paths
        return len(paths) == len(self._site.entities) and all(
            path.status in states for path in paths.values()
        )

    def _note(self, name: str) -> None:
        self._moments[name] = datetime.now(UTC)

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                raise StateError(f"waited {PATIENCE_S:g} s in vain for {what}")
            self._pause.wait(LOOK_S)


class _Spark:
    """Spark, started in the background, so that it is there when the syphon needs it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pool = ThreadPoolExecutor(1, "Spark starts")
        self._started: Future[Any] | None = None

    def __enter__(self) -> "_Spark":
        return self

    def start(self) -> None:
        from pairbus.spark.sessions import lease_session

        self._started = self._pool.submit(lease_session, None, self._log)

    def wait(self) -> None:
        """Raises StateError where Spark does not start."""
        assert self._started is not None
        try:
            self._started.result()
        except Exception as exc:
            raise StateError(f"Spark did not start: {str(exc).splitlines()[0]}") from exc

    def __exit__(self, *exc: object) -> None:
        if self._started is not None and self._started.exception() is None:
            self._started.result().release()
        self._pool.shutdown()


def _seconds(span: Any) -> str:
    return f"{span.total_seconds():g} s"
