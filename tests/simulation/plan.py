"""The plan of a simulation: everything that is decided before the world starts.

A plan can be changed and run again, so a failing one can be shrunk: fewer faults, fewer messages.
The world draws its own random numbers (delays, the order of events at one time) from the seed.
"""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks at a time, for a time."""

    at: float
    kind: str
    seconds: float
    number: int
    """Chooses among several targets."""

    def __str__(self) -> str:
        return f"at {self.at:.1f} s for {self.seconds:.1f} s: {self.kind}"


@dataclass(frozen=True, slots=True)
class PlannedSend:
    """One call of `send_messages` or `schedule_messages` by an application."""

    at: float
    process: int
    caller: int
    path: str
    ids: tuple[str, ...]
    session: str | None
    is_refused: bool = False
    """The ids are so long that every queue refuses the messages."""
    fills_batch: bool = False
    """The messages are as large as a batch can be."""
    timeout_s: float | None = None
    """The timeout of the call; None: that of the pairing."""
    cancel_after_s: float | None = None
    """The time after which an asynchronous application cancels the first call for the messages."""
    schedule_s: float | None = None
    """The messages are scheduled for so long after the first call."""
    calls_schedule: bool = False
    """They are scheduled by `schedule_messages`, and not by their property."""
    revoke_after_s: float | None = None
    """They are cancelled by `cancel_scheduled_messages` so long after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before a simulation starts."""

    seed: int
    fault_phase_s: float
    paths: int
    backlog_queues: int
    processes: int
    callers: int
    after_drain: bool
    duplicate_detection: bool
    failover_interval_s: float
    ping_interval_s: float
    operation_timeout_s: float
    retries: int
    """The retries of the SDK."""
    cool_down_s: float
    hold_s: float
    lock_s: float
    tier: str
    slow_share: float
    """The share of connections that are much slower than others."""
    delay_s: float
    """The longest delay of the network."""
    clock_offset_s: float
    clock_rate: float
    once: bool
    syphons: int
    task_slots: int
    syphon_batch: int
    """The most messages of one delivery of a syphon, so that few messages need several."""
    with_ledger: bool
    with_tokens: bool
    with_consumer: bool
    preloaded: int
    """The number of messages that are in the backlog when the simulation begins."""
    sends: tuple[PlannedSend, ...] = field(repr=False)
    faults: tuple[Fault, ...] = field(repr=False)
    asynchronous: bool = False
    """Applications use `pairbus.aio`."""
    busy_failover_s: float | None = None
    """The time of throttling after which paths fail over; None: they do not."""
    dead_letters: int = 0
    """The number of dead letters that the backlog has when the simulation begins."""
    operators: int = 1
    """Processes that redrive dead letters at the same time."""
    redrive_rate: float | None = None
    """The most dead letters that each of them moves in a second."""
    shares_senders: bool = False
    """Two callers of a process at a time share a sender for each path. Their calls take turns."""

    @property
    def messages(self) -> int:
        return sum(len(send.ids) for send in self.sends)

    def without(self, *, faults: set[int] | None = None, sends: set[int] | None = None) -> "Plan":
        """Return a plan without some faults and sends, by their positions."""
        return replace(
            self,
            faults=tuple(f for i, f in enumerate(self.faults) if i not in (faults or ())),
            sends=tuple(s for i, s in enumerate(self.sends) if i not in (sends or ())),
        )

    def describe(self) -> str:
        lines = [repr(self)]
        lines += [f"fault {fault}" for fault in self.faults]
        lines += [
            f"send at {send.at:.1f} s by process {send.process}, caller {send.caller}: "
            f"{', '.join(send.ids)} to {send.path}"
            + ("" if send.session is None else f", session {send.session}")
            for send in self.sends
        ]
        return "\n".join(lines)
