"""Applications: processes that pair two namespaces and send messages, with the real pairing."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus import exceptions as sdk

from pairbus.amqp.batch import batch_envelope, make_batch
from pairbus.amqp.client import ClientOptions
from pairbus.errors import (
    CannotCancel,
    MessageTooLargeForBacklog,
    SenderInUse,
    SendOutcome,
    SendUnavailable,
)
from pairbus.events import BacklogQueuePulled, Event, PathStatus, Pinged, StateChanged
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.client import PairedClient
from pairbus.pairing.namespaces import NamespaceId
from pairbus.pairing.plan import PairingPlan
from pairbus.pairing.sdk import encode
from pairbus.pairing.usage import PairingUsage
from pairbus.servicebus import conditions
from pairbus.servicebus.limits import MAX_MESSAGE_SIZE_STANDARD
from tests.simulation.aio_client import BlockingClient
from tests.simulation.aio_sdk import AsyncSdkClient
from tests.simulation.checks import StoredCopy
from tests.simulation.closing import check_close
from tests.simulation.driver import SimulatedDriver
from tests.simulation.event_checks import EventChecks
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.journal import Journal, MessageRecord, id_of
from tests.simulation.path_checks import PathChecks
from tests.simulation.plan import Plan, PlannedSend
from tests.simulation.scheduler import Machine, Process, ProcessKilled
from tests.simulation.sdk import SdkClient, SdkSender
from tests.simulation.world import World

MAX_TRIES = 60
TOLERANCE_S = 1.0
"""A call may take this much longer than its timeout (docs/explanation/guarantees.md)."""
LIVE_S = 5.0
"""The longest time in which no live call gets through beside a drain. Callers try again after up to
2 s."""
CALLERS_ERRORS = (
    sdk.MessageSizeExceededError,
    sdk.MessagingEntityNotFoundError,
    sdk.ServiceBusAuthenticationError,  # simulated namespaces refuse tokens with status 401
    sdk.ServiceBusQuotaExceededError,
)
"""Errors of the primary that are no outage."""
QUEUE_ERRORS = (sdk.MessagingEntityNotFoundError, sdk.ServiceBusQuotaExceededError)
"""Errors of one backlog queue."""
SLACK = 24
"""Bytes that are left in a batch that was filled, for the longer encodings of sizes."""


class Application:
    """A process that sends messages, with several callers. It starts again after it was killed."""

    def __init__(
        self,
        world: World,
        plan: Plan,
        number: int,
        journal: Journal,
        primary: ClientOptions,
        secondary: ClientOptions,
        backlog_queues: tuple[str, ...],
        *,
        ledger: str | None = None,
        backlog: Callable[[], Iterable[StoredCopy]],
    ) -> None:
        """`backlog` returns the messages that are in the backlog."""
        self.world = world
        self.plan = plan
        self.number = number
        self.journal = journal
        self.machine = Machine(
            f"sender{number}", offset_s=-plan.clock_offset_s, rate=plan.clock_rate
        )
        self.frozen_s = 0.0
        """The time for which the process was frozen so far."""
        self.states_seen: set[str] = set()
        self._primary, self._secondary = primary, secondary
        self._queues = backlog_queues
        self._ledger = ledger
        self._backlog = backlog
        self._sent_at = 0.0
        """The time at which a call succeeded last."""
        self._ids: set[str] = set()
        """The messages that the process has sent since it was started."""
        self._marking: set[str] = set()
        """Paths that an operator marks healthy now."""
        self._starts = 0
        self._todo = [
            [send for send in plan.sends if send.process == number and send.caller == caller]
            for caller in range(plan.callers)
        ]
        self._active = 0
        self._senders: list[dict[str, Any]] = []
        """The senders of each caller by path, which stay open as long as the process runs."""
        self.process: Process
        self.paired: PairedClient | BlockingClient | None = None
        self.is_closing = False
        """The process closes its client, and starts again then."""
        self.secondary: SdkClient | None = None
        self._checks: PathChecks
        self._events: EventChecks

    @property
    def done(self) -> bool:
        """True if all messages were sent or given up."""
        return self.process.alive and self._active == 0 and not self.is_closing

    def start(self) -> None:
        self._starts += 1
        process = self.process = self.world.process(f"sender{self.number}", self.machine)
        self._active = self.plan.callers
        senders: list[dict[str, Any]] = [{} for _ in range(self.plan.callers)]
        if self.plan.shares_senders:
            senders = [senders[caller - caller % 2] for caller in range(self.plan.callers)]
        self._senders = senders
        self.is_closing = False
        self._ids.clear()
        self._checks = PathChecks(self.plan, self.journal, process.monotonic, lambda: self.frozen_s)
        self._events = EventChecks(self.journal, process.name)
        self._marking.clear()
        process.spawn(self._main)

    def kill(self, *, silent: bool) -> None:
        self.world.kill(self.process, silent=silent)
        self.paired = self.secondary = None

    def restart(self, paired: PairedClient | BlockingClient) -> None:
        """Close the client, end the process, and start it again, as for a new version."""
        process = self.process
        self.is_closing = True

        def close() -> None:
            check_close(self, paired)
            self.world.scheduler.call_soon(end, process)

        def end() -> None:
            self.kill(silent=False)
            self.start()

        process.spawn(close, "closing")

    def mark_healthy(self, path: str) -> None:
        """End the failover of a path, as an operator does."""
        paired = self.paired
        assert paired is not None
        self.journal.marked_paths.add(path)
        self.world.trace(self.process.name, f"marks {path} healthy")

        def mark() -> None:
            self._marking.add(path)
            paired.mark_path_healthy(path)
            self._marking.discard(path)

        self.process.spawn(mark, "mark healthy")

    def _main(self) -> None:
        plan, process, world = self.plan, self.process, self.world
        options = SendAvailabilityOptions(
            backlog_queue_count=plan.backlog_queues,
            failover_interval=timedelta(seconds=plan.failover_interval_s),
            ping_primary_interval=timedelta(seconds=plan.ping_interval_s),
            failback="after-drain" if plan.after_drain else "immediate",
            failback_hold=timedelta(seconds=plan.hold_s),
            operation_timeout=timedelta(seconds=plan.operation_timeout_s),
            backlog_cool_down=timedelta(seconds=plan.cool_down_s),
            check_duplicate_detection=False,
            failover_on_busy=None
            if plan.busy_failover_s is None
            else timedelta(seconds=plan.busy_failover_s),
            on_event=self._on_event,
        )
        client_class = AsyncSdkClient if plan.asynchronous else SdkClient
        primary = client_class(process, self._primary, self._on_primary_call, retries=plan.retries)
        secondary = self.secondary = client_class(
            process, self._secondary, lambda sender: None, retries=plan.retries
        )
        secondary.is_held = self._is_held
        primary.hooks.append(self._on_transfer)
        secondary.hooks.append(self._on_transfer)
        pairing = PairingPlan(
            options=options,
            primary=primary,
            secondary=secondary,
            primary_id=NamespaceId("primary.simulation", 5672),
            secondary_id=NamespaceId("secondary.simulation", 5672),
            owns_secondary=False,
            paths=self._queues,
            random=Random(world.random.random()),
            usage=None
            if self._ledger is None
            else PairingUsage(self._ledger, "primary.simulation", "secondary.simulation"),
        )
        paired: PairedClient | BlockingClient
        if plan.asynchronous:
            paired = BlockingClient(SimulatedLoop(process), pairing, self._queues)
        else:
            paired = PairedClient(pairing, self._queues, SimulatedDriver(world.scheduler))
        self.paired = paired
        for caller, sends in enumerate(self._todo):
            process.spawn(lambda c=caller, s=sends: self._call(paired, c, s), f"caller{caller}")  # type: ignore[misc]

    # What the pairing does.

    @property
    def backlog_links(self) -> int:
        """The number of links to the backlog that calls have opened and keep."""
        links = () if self.paired is None else self.paired._open_links
        return sum(len(each._backlog) for each in links)

    def statuses(self) -> dict[str, PathStatus]:
        if self.paired is None:
            return {}
        paths = self.paired._pairing._paths
        return {name: path.health.status for name, path in paths.items()}

    def _is_held(self) -> bool:
        """Return whether the sends of a path are held."""
        paths = {} if self.paired is None else self.paired._pairing._paths
        return any(path.health.hold_until is not None for path in paths.values())

    def check_events(self) -> None:
        """Check that the events told the state in which the pairing is."""
        if self.paired is not None:
            pairing = self.paired._pairing
            self._events.compare(
                self.statuses(),
                set(pairing.rotation.pulled()),
                is_down=pairing.secondary_host.is_down,
            )

    def _on_event(self, event: Event) -> None:
        self._events.add(event)
        if isinstance(event, StateChanged):
            self.world.trace(
                self.process.name,
                f"{event.path}: {event.from_state.value} -> {event.to_state.value}",
            )
            self.states_seen.add(event.to_state.value)
            self._checks.status_changed(
                event.path,
                event.from_state,
                event.to_state,
                by_hand=event.path in self._marking,
            )
            if event.from_state is PathStatus.DRAINING:
                self._check_failback(event.path)
            elif event.from_state is PathStatus.HEALTHY and isinstance(event.cause, CALLERS_ERRORS):
                self.journal.violate("S2", f"{event.path} is suspect because of {event.cause!r}")
            if self.plan.busy_failover_s is None and isinstance(
                event.cause, sdk.ServiceBusServerBusyError
            ):
                self.journal.violate("S2", f"{event.path} failed over because of throttling")
        else:
            self.world.trace(self.process.name, type(event).__name__)
        if isinstance(event, Pinged):
            self._checks.pinged(event.path)
        if (
            isinstance(event, BacklogQueuePulled)
            and getattr(event.cause, "_condition", None) == conditions.NOT_ALLOWED
        ):
            self.journal.violate("S4", f"{event.queue} was pulled for a message that was refused")

    def _check_failback(self, path: str) -> None:
        """Check that all messages of a path that fails back have left the backlog: the next ones
        would pass them."""
        assert self.paired is not None
        if path in self.journal.marked_paths:
            return
        in_flight = self.paired._pairing._paths[path].health.in_flight
        if in_flight:
            self.journal.violate(
                "S12", f"{path} fails back during {in_flight} sends to the backlog"
            )
        for copy in self._backlog():
            record = self.journal.messages.get(copy.id)
            if (
                record is not None
                and record.path == path
                and copy.id in self._ids
                and not record.unanswered_by_backlog  # it may be stored at any time
            ):
                self.journal.violate("S12", f"{path} fails back, and {copy.id} is in the backlog")

    def _on_primary_call(self, sender: SdkSender) -> None:
        """Check that nothing but pings is sent to a path in failover."""
        status = self.statuses().get(sender.path)
        if status in (PathStatus.FAILOVER, PathStatus.DRAINING):
            self.journal.violate(
                "S4", f"{self.process.name} calls the primary for {sender.path} in {status.value}"
            )

    def _on_transfer(self, sender: SdkSender, payloads: list[bytes], event: str) -> None:
        host = sender.fully_qualified_namespace.partition(".")[0]
        ids = [id_of(payload) for payload in payloads]
        if event == "accepted" and host == "secondary":
            self._checks.queue_accepted(sender.path)
        elif event == "accepted" and any(id in self.journal.messages for id in ids):
            self._checks.primary_accepted(sender.path)
        for id in ids:
            record = self.journal.messages.get(id)
            if record is None:
                if event == "sends":
                    self._checks.ping_sent(sender.path)
                continue
            if host == "secondary":
                record.unanswered_by_backlog += 1 if event == "sends" else -1
            if event == "sends":
                record.transfers += 1
            elif event == "accepted":
                record.accepted += 1
                if host == "secondary":
                    self.journal.stored.add(id)
            else:
                record.rejected += 1
        self.world.trace(self.process.name, f"{event} {' '.join(ids)} at {host}/{sender.path}")

    # What the callers do.

    def _call(
        self, paired: PairedClient | BlockingClient, caller: int, sends: list[PlannedSend]
    ) -> None:
        scheduler, process = self.world.scheduler, self.process
        senders = self._senders[caller]
        while sends and not self.is_closing:
            send = sends[0]
            if send.at > scheduler.now:
                scheduler.current_task().wait((send.at - scheduler.now) * process.machine.rate)
            if self.is_closing:
                break
            sends.pop(0)  # a process that is killed now does not send it again
            if send.path not in senders:
                senders[send.path] = paired.get_queue_sender(send.path)
            self._send(senders[send.path], send)
        self._active -= 1

    def _send(self, sender: Any, send: PlannedSend) -> None:
        journal, process = self.journal, self.process
        # Another process knows nothing of the failover, so the order ends with the process.
        session = None if send.session is None else f"{send.session}-{self._starts}"
        records = {}
        self._ids.update(send.ids)
        enqueue_at = scheduled_ms = None
        if send.schedule_s is not None:
            scheduled_ms = int((process.wall() + send.schedule_s) * 1000)
            enqueue_at = datetime.fromtimestamp(scheduled_ms / 1000, UTC)
        for id in send.ids:
            records[id] = journal.messages[id] = MessageRecord(
                id,
                send.path,
                session,
                process.name,
                journal.next_event(),
                scheduled_ms=scheduled_ms,
            )
        first_at = self.world.scheduler.now
        gives_up = send.is_refused or int(send.ids[0][1:]) % 5 == 0
        tries = 0
        while records:
            messages = [message_of(id, session) for id in records]
            if enqueue_at is not None and not send.calls_schedule:
                for each in messages:
                    each.scheduled_enqueue_time_utc = enqueue_at
            if send.fills_batch and len(messages) > 1:
                _fill_batch(messages)
            for record in records.values():
                record.unanswered_before = record.unanswered
            began, frozen_s = process.monotonic(), self.frozen_s
            self.world.trace(process.name, f"calls send {' '.join(records)} {send.path} {session}")
            options: dict[str, Any] = {"timeout": send.timeout_s}
            if send.cancel_after_s is not None and tries == 0:
                options["cancel_after_s"] = send.cancel_after_s
            numbers: list[int | None] = []
            message = messages if len(messages) > 1 else messages[0]
            try:
                if send.calls_schedule:
                    numbers = sender.schedule_messages(message, enqueue_at, **options)
                else:
                    sender.send_messages(message, **options)
            except ProcessKilled:
                for record in records.values():
                    record.unknown += 1
                raise
            except asyncio.CancelledError:
                self.world.trace(process.name, f"cancelled {' '.join(records)}")
                self._check_cancelled(began, frozen_s, send)
                for record in records.values():
                    record.unknown += 1
                    record.cancelled += 1
            except Exception as exc:  # noqa: BLE001  an application handles any error
                self._check_duration(began, frozen_s, send)
                self._checks.check_timers()
                self.world.trace(process.name, f"failed {' '.join(records)}: {_short(exc)}")
                self._check_error(exc)
                self._record_failure(records, exc)
                self._check_live(first_at)
            else:
                self._check_duration(began, frozen_s, send)
                if self.paired is not None:
                    self._checks.check_rotation(self.paired)
                self.world.trace(process.name, f"acknowledged {' '.join(records)}")
                self._sent_at = self.world.scheduler.now
                acknowledged = list(records.values())
                self._acknowledge(acknowledged, records)
                if send.revoke_after_s is not None:
                    self.world.scheduler.current_task().wait(send.revoke_after_s)
                    self._revoke(sender, send, numbers, acknowledged)
            tries += 1
            if not records or gives_up or tries > MAX_TRIES or self.is_closing:
                break
            self.world.scheduler.current_task().wait(1.0 + self.world.random.random())
        if records and not gives_up and not self.is_closing:
            journal.violate("liveness", f"{' '.join(records)} could not be sent in {tries} calls")

    def _revoke(
        self,
        sender: Any,
        send: PlannedSend,
        numbers: list[int | None],
        records: list[MessageRecord],
    ) -> None:
        """Cancel scheduled messages."""
        ids = " ".join(send.ids)
        self.world.trace(self.process.name, f"cancels {ids}")
        is_stored = None in numbers
        for record in records:
            record.may_be_revoked = not is_stored
        began, frozen_s = self.process.monotonic(), self.frozen_s
        try:
            sender.cancel_scheduled_messages(numbers, timeout=send.timeout_s)
        except CannotCancel:
            if not is_stored:
                self.journal.violate("S10", f"{ids} cannot be cancelled, and has a sequence number")
        except Exception as exc:  # noqa: BLE001  an application handles any error
            self._check_duration(began, frozen_s, send)
            self.world.trace(self.process.name, f"could not cancel {ids}: {_short(exc)}")
        else:
            self._check_duration(began, frozen_s, send)
            self.world.trace(self.process.name, f"has cancelled {ids}")
            for record in records:
                record.is_revoked = True

    def _check_live(self, first_at: float) -> None:
        """Check that calls get through beside a drain. `first_at` is the time of the first call for
        the same messages."""
        wait_s = self.world.scheduler.now - max(first_at, self._sent_at)
        if self.plan.preloaded and wait_s > LIVE_S:
            self.journal.violate("Y9", f"no message could be sent for {wait_s:.1f} s")

    def _acknowledge(
        self, acknowledged: list[MessageRecord], records: dict[str, MessageRecord]
    ) -> None:
        for record in acknowledged:
            record.acknowledged = self.journal.next_event()
            del records[record.id]

    def _check_error(self, error: Exception) -> None:
        """Check that a caller is not told of one backlog queue that is full or missing."""
        if isinstance(error, QUEUE_ERRORS) and any(queue in str(error) for queue in self._queues):
            self.journal.violate("S4", f"a caller was told of a backlog queue: {_short(error)}")

    def _record_failure(self, records: dict[str, MessageRecord], error: Exception) -> None:
        ids = list(records)
        if isinstance(error, SendUnavailable) and error.messages:
            for outcome in error.messages:
                record = records[ids[outcome.position]]
                if outcome.outcome is SendOutcome.STORED:
                    self._acknowledge([record], records)
                elif outcome.outcome is SendOutcome.NOT_SENT:
                    self._record_not_sent(record)
                else:
                    record.unknown += 1
        elif isinstance(error, MessageTooLargeForBacklog | SenderInUse):
            for record in records.values():
                self._record_not_sent(record)
        else:
            for record in records.values():
                record.unknown += 1

    def _record_not_sent(self, record: MessageRecord) -> None:
        record.not_sent += 1
        if record.unanswered > record.unanswered_before:
            self.journal.violate(
                "S5", f"{record.id} was reported as not sent after a transfer without an answer"
            )

    def active_s(self, began: float, frozen_s: float) -> float:
        """Return the time since `began`, without that for which the process was frozen. `frozen_s`
        is the time for which it had been frozen before."""
        return self.process.monotonic() - began - (self.frozen_s - frozen_s)

    def _check_cancelled(self, began: float, frozen_s: float, send: PlannedSend) -> None:
        """Check that a call that was cancelled ends soon."""
        assert send.cancel_after_s is not None
        took_s = self.active_s(began, frozen_s)
        if took_s > send.cancel_after_s + TOLERANCE_S:
            self.journal.violate(
                "S2a",
                f"the call for {' '.join(send.ids)} was cancelled after "
                f"{send.cancel_after_s:.2f} s, and took {took_s:.2f} s",
            )

    def _check_duration(self, began: float, frozen_s: float, send: PlannedSend) -> None:
        took_s = self.active_s(began, frozen_s)
        timeout_s = self.plan.operation_timeout_s if send.timeout_s is None else send.timeout_s
        limit_s = timeout_s + TOLERANCE_S
        if took_s > limit_s:
            self.journal.violate(
                "S2a", f"the call for {' '.join(send.ids)} took {took_s:.2f} s, not {limit_s:.2f} s"
            )


def message_of(id: str, session: str | None) -> ServiceBusMessage:
    message = ServiceBusMessage(f"body of {id}", session_id=session)
    properties = message.raw_amqp_message.properties
    assert properties is not None
    properties.message_id = id  # the SDK itself refuses a long id
    return message


def _fill_batch(messages: list[ServiceBusMessage]) -> None:
    """Make the last message so long that the batch just fits: in the backlog its messages have more
    properties, so there it is split."""
    members = [encode(message) for message in messages]
    size = len(make_batch(members, batch_envelope(members[0])))
    body = b"".join(messages[-1].body) + b"." * (MAX_MESSAGE_SIZE_STANDARD - size - SLACK)
    messages[-1].raw_amqp_message._data_body = [body]


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:160]}"
