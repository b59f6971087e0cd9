"""The drill, stage by stage."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient

from pairbus.drill.collect import collect
from pairbus.drill.connections import client_options, sdk_client
from pairbus.drill.console_reports import ConsoleReports, ConsoleStarter
from pairbus.drill.costs import OutageTimes, drill_cost, forecast_counts
from pairbus.drill.environments import Environment
from pairbus.drill.milestones import Milestone
from pairbus.drill.plan import DrillOptions
from pairbus.drill.reconciliation import reconcile
from pairbus.drill.result import DrillResult
from pairbus.drill.senders import SendCounts, Senders
from pairbus.drill.spark_startup import BackgroundSpark
from pairbus.errors import PairbusError, StateError
from pairbus.events import Event, PathStatus, Pinged, StateChanged
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.client import PairedClient, pair_namespace

if TYPE_CHECKING:
    from pairbus.syphon.progress import DrainProgress
    from pairbus.syphon.query import Syphon
    from pairbus.syphon.status import SyphonStatus

RETRIES: dict[str, Any] = {
    "retry_total": 1,
    "retry_backoff_factor": 0.1,
    "retry_backoff_max": 1,
}
"""Few retries of the SDK, so that failover begins soon: the defaults take 11 to 20 seconds."""
POLL_S = 0.1
COUNT_S = 1.0
APPLICATION = "pairbus drill"
"""The name of the senders in a console."""
STAGE_TIMEOUT_S = 90.0
"""The maximum time of a stage without progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSnapshot:
    """The state of a drill at one moment."""

    states: dict[str, PathStatus]
    counts: dict[str, SendCounts]
    pings: int
    syphon: "SyphonStatus | None"
    """None until the syphon runs."""
    progress: "DrainProgress | None"
    """The progress of the drain. None until the syphon runs."""


class Drill:
    """An outage of the primary while an application sends. `report` receives a sentence for each
    event."""

    def __init__(
        self,
        environment: Environment,
        options: DrillOptions,
        folder: Path,
        report: Callable[[str], None],
        start_console: ConsoleStarter | None = None,
    ) -> None:
        self._environment = environment
        self._options = options
        self._ledger = folder / "ledger"
        self._report = report
        self._start_console = start_console
        self._console: ConsoleReports | None = None
        self._pings = 0
        self._times: dict[Milestone, datetime] = {}
        self._client: PairedClient | None = None
        self._senders: Senders | None = None
        self._syphon: Syphon | None = None
        self._progress: DrainProgress | None = None
        self._pause = threading.Event()

    def snapshot(self) -> DrillSnapshot:
        client, senders, syphon = self._client, self._senders, self._syphon
        paths = {} if client is None else client.status().paths
        return DrillSnapshot(
            states={path: snapshot.status for path, snapshot in paths.items()},
            counts={} if senders is None else senders.counts,
            pings=self._pings,
            syphon=None if syphon is None else syphon.status(),
            progress=self._progress,
        )

    def run(self, on_result: Callable[[DrillResult], None] = lambda _: None) -> DrillResult:
        """Run the whole drill, and remove everything that it has created. Raises PairbusError if it
        could not start. `on_result` gets the result while the namespaces and the console still
        run."""
        try:
            return self._run(on_result)
        except AzureError as exc:
            raise StateError(str(exc).splitlines()[0]) from exc

    def _run(self, on_result: Callable[[DrillResult], None]) -> DrillResult:
        backlog_queues: tuple[str, ...] = ()
        with contextlib.ExitStack() as resources:
            resources.callback(lambda: self._clean_up(backlog_queues))
            self._report(self._environment.open())
            if self._start_console is not None:
                self._console = resources.enter_context(self._start_console(self.snapshot))
                self._report(self._console.announcement)
            network = self._environment.network
            primary, secondary = (
                resources.enter_context(sdk_client(text, network, **settings))
                for text, settings in (
                    (self._environment.primary, RETRIES),
                    (self._environment.secondary, {}),
                )
            )
            options = self._pairing_options(secondary)
            client = self._client = resources.enter_context(pair_namespace(primary, options))
            backlog_queues = client.backlog_queues
            self._report(
                f"Paired the namespaces: {len(backlog_queues)} backlog queues, failover after "
                f"{_seconds(self._options.failover_interval)}, a ping every "
                f"{_seconds(self._options.ping_primary_interval)}, failback "
                f"{self._options.failback}."
            )
            senders = self._senders = Senders(client, self._environment.entities, self._options)
            resources.callback(senders.stop)
            problem = self._run_stages(client, senders)
            self._report("The senders have stopped. Receiving all messages from the primary.")
            result = self._result(client, senders, options, problem)
            on_result(result)
            return result

    def _result(
        self,
        client: PairedClient,
        senders: Senders,
        options: SendAvailabilityOptions,
        problem: str | None,
    ) -> DrillResult:
        environment = self._environment
        collected = collect(
            environment.primary,
            environment.secondary,
            environment.entities,
            senders.sessions,
            client.backlog_queues,
            max_rate=environment.max_receive_rate,
            network=environment.network,
        )
        primary = client.status().primary
        client.close()  # writes the rest of the ledger
        moved = 0 if self._syphon is None else self._syphon.status().moved.total()
        times = OutageTimes.measure(self._times, moved, self._options)
        forecast = forecast_counts(self._options, options, len(environment.entities), times)
        return DrillResult(
            reconciliation=reconcile(
                senders.sent,
                delivered=collected.delivered,
                in_backlog=collected.in_backlog,
                dead_lettered=collected.dead_lettered,
            ),
            dead_letter_reasons=collected.dead_lettered,
            through_backlog=sum(counts.to_backlog for counts in senders.counts.values()),
            errors=sum(counts.errors for counts in senders.counts.values()),
            pings=self._pings,
            times=dict(self._times),
            cost=drill_cost(forecast, self._ledger, primary),
            problem=problem,
        )

    def _clean_up(self, backlog_queues: tuple[str, ...]) -> None:
        if remaining := self._environment.close(backlog_queues):
            self._report(f"Could not remove {', '.join(remaining)}. Remove them by hand.")

    def _pairing_options(self, secondary: ServiceBusClient) -> SendAvailabilityOptions:
        console = self._console
        return SendAvailabilityOptions(
            secondary=secondary,
            primary_name=self._environment.primary_name,
            backlog_queue_count=self._options.backlog_queue_count,
            failover_interval=self._options.failover_interval,
            ping_primary_interval=self._options.ping_primary_interval,
            failback=self._options.failback,
            check_duplicate_detection=False,  # all entities have it
            ledger=self._ledger,
            on_event=self._on_event,
            console=None if console is None else console.url,
            console_token=None if console is None else console.token,
            console_application=None if console is None else APPLICATION,
        )

    # The stages.

    def _run_stages(self, client: PairedClient, senders: Senders) -> str | None:
        """Run all stages. Return the reason if they were not completed."""
        problem = None
        with BackgroundSpark(self._ledger.with_name("spark.log")) as spark:
            try:
                self._send_and_fail_over(client, senders, spark)
                self._fail_back(client)
                self._drain(client, spark)
                self._pause.wait(self._options.after.total_seconds())
            except PairbusError as exc:
                problem = str(exc)
                self._report(f"The drill cannot continue: {problem}")
                with contextlib.suppress(Exception):  # the first problem is reported
                    self._end_outage()
            senders.stop()
            if self._syphon is not None:
                self._syphon.stop()
        if senders.failures and problem is None:
            problem = f"A sender failed: {senders.failures[0]}"
        return problem

    def _send_and_fail_over(
        self, client: PairedClient, senders: Senders, spark: BackgroundSpark
    ) -> None:
        entities = ", ".join(
            f"{entity.path} ({entity.type.value})" for entity in self._environment.entities
        )
        senders.start()
        self._report(
            f"{self._options.senders} senders send {self._options.rate:g} messages a second to "
            f"{entities}."
        )
        self._pause.wait(self._options.before.total_seconds())
        self._report(self._environment.start_outage())
        self._record(Milestone.OUTAGE_STARTED)
        spark.start()  # during the outage, because it takes some seconds
        self._wait_for(client, "failover of every path", PathStatus.FAILOVER)
        self._record(Milestone.FAILED_OVER)
        self._report("Every path is in failover. Messages go to the backlog.")

    def _fail_back(self, client: PairedClient) -> None:
        outage = datetime.now(UTC) - self._times[Milestone.OUTAGE_STARTED]
        self._pause.wait(max(0.0, (self._options.outage - outage).total_seconds()))
        self._end_outage()
        self._wait_for(client, "a successful ping", PathStatus.HEALTHY, PathStatus.DRAINING)
        self._record(Milestone.PING_SUCCEEDED)

    def _end_outage(self) -> None:
        if Milestone.OUTAGE_STARTED in self._times and Milestone.OUTAGE_ENDED not in self._times:
            self._report(self._environment.end_outage())
            self._record(Milestone.OUTAGE_ENDED)

    def _drain(self, client: PairedClient, spark: BackgroundSpark) -> None:
        from pairbus.syphon.options import SyphonOptions
        from pairbus.syphon.query import Syphon

        spark.wait()
        syphon = Syphon(
            SyphonOptions(
                primary=client_options(self._environment.primary, self._environment.network),
                secondary=client_options(self._environment.secondary, self._environment.network),
                primary_name=self._environment.primary_name,
                backlog_queue_count=self._options.backlog_queue_count,
                ledger=str(self._ledger),
                control_file=None if self._console is None else str(self._console.control_file),
            )
        )
        syphon.start()
        self._syphon = syphon
        self._record(Milestone.DRAIN_STARTED)
        self._report("The syphon runs on Spark and moves the backlog to the primary.")
        self._wait_until_drained(client, syphon)
        self._record(Milestone.DRAINED)
        moved = syphon.status().moved.total()
        self._report(f"The backlog is empty: {moved:,} messages were moved. Every path is healthy.")

    def _wait_until_drained(self, client: PairedClient, syphon: "Syphon") -> None:
        from pairbus.syphon.counts import backlog_size
        from pairbus.syphon.progress import DrainProgress

        drain = self._progress = DrainProgress()
        best: tuple[int, int] | None = None
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        while True:
            moved = syphon.status().moved.total()
            count = backlog_size(syphon.options.secondary, syphon.options.backlog_queues)
            if count is not None:
                drain.add_count(time.monotonic(), moved, count)
            drain.add(time.monotonic(), moved)
            if count == 0 and self._all_paths_are(client, PathStatus.HEALTHY):
                return
            status = syphon.status()
            if status.failure is not None:
                raise StateError(f"The syphon failed: {status.failure.splitlines()[0]}")
            progress = status.moved.total(), -(drain.remaining or 0)
            if best is None or progress > best or status.paused:  # by the user, in the console
                best, deadline = progress, time.monotonic() + STAGE_TIMEOUT_S
            if time.monotonic() > deadline:
                problem = status.problem or "messages remain in the backlog"
                raise StateError(f"The drain made no progress for {STAGE_TIMEOUT_S:g} s: {problem}")
            self._pause.wait(COUNT_S)

    # Events and waits.

    def _on_event(self, event: Event) -> None:
        match event:
            case StateChanged(path=path, from_state=before, to_state=after):
                self._report(f"{path}: {before.value} → {after.value}")
            case Pinged():
                self._pings += 1

    def _all_paths_are(self, client: PairedClient, *states: PathStatus) -> bool:
        paths = client.status().paths
        return len(paths) == len(self._environment.entities) and all(
            path.status in states for path in paths.values()
        )

    def _record(self, milestone: Milestone) -> None:
        self._times[milestone] = datetime.now(UTC)

    def _wait_for(self, client: PairedClient, event: str, *states: PathStatus) -> None:
        """Wait until every path is in one of these states."""
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        while not self._all_paths_are(client, *states):
            if time.monotonic() > deadline:
                raise StateError(f"Timed out after {STAGE_TIMEOUT_S:g} s waiting for {event}.")
            self._pause.wait(POLL_S)


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g} s"
