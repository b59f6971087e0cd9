"""The verdict on a run: no message is lost (X1), every duplicate is explained (X2), no message that
was reported as not sent arrived (S5), and sessions are in order (S12, Y10). No I/O."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pairbus.drill.reconciliation import MessageKey, Reconciliation, SentMessage, reconcile
from tests.faults.matrix.sender_log import SenderLog

SLACK_S = 5.0
"""Messages that were in buffers at the end of a fault may be delivered this much later."""
MAX_KEYS = 5
SENT_AGAIN = "its send failed and was repeated"
SENT_ELSEWHERE = "a response came too late, so it was sent elsewhere too"
UNSETTLED = "the syphon reported it: its lock had expired"


class FaultWindow(NamedTuple):
    """The time of a fault, by the system clock. A kill ends when the process is killed."""

    name: str
    start: float
    end: float


class DeliveredCopy(NamedTuple):
    """A copy of a message at its destination."""

    key: MessageKey
    time: float
    """The time of its delivery, by the system clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The reconciliation of a run, and its problems."""

    reconciliation: Reconciliation
    explained: Counter[str] = field(default_factory=Counter)
    """The explanations of duplicates, with their numbers."""
    problems: tuple[str, ...] = ()
    """Descriptions of the problems, as sentences."""


def judge(
    log: SenderLog,
    copies: Sequence[DeliveredCopy],
    *,
    extra: Iterable[SentMessage] = (),
    exact: Iterable[str],
    windows: Sequence[FaultWindow],
    unsettled: int,
    in_backlog: Iterable[MessageKey] = (),
    dead_lettered: Iterable[MessageKey] = (),
    ordered: bool = False,
    lost_by_redrive: Sequence[MessageKey] = (),
) -> Verdict:
    """Judge a run. `extra` are messages that were put directly into the backlog, `exact` the paths
    with duplicate detection, `unsettled` the number of duplicates that the syphon has reported.
    `ordered`: the messages of a session that one process sent must arrive in the order in which
    they were sent."""
    dead, remaining = list(dead_lettered), list(in_backlog)
    reconciliation = reconcile(
        [*log.acknowledged.values(), *extra],
        delivered=[copy.key for copy in copies],
        in_backlog=remaining,
        dead_lettered=dead,
    )
    sent_after_all = sorted(log.reported_as_not_sent().intersection(copy.key for copy in copies))
    undetected = [key for key in reconciliation.duplicated if key.path in set(exact)]
    explained, unexplained = explain(reconciliation.duplicated, copies, windows, log)
    if unexplained and unsettled > 0:
        explained[UNSETTLED] += min(len(unexplained), unsettled)
    problems = (
        _problem("lost", reconciliation.lost),
        _problem("delivered, but reported as not sent", sent_after_all),
        _problem("duplicated in spite of duplicate detection", undetected),
        _problem(f"duplicated without explanation for more than {unsettled} of them", unexplained)
        if len(unexplained) > unsettled
        else "",
        # The messages are valid and their destinations exist, so none may stay behind.
        _problem("dead-lettered", dead),
        _problem("left in the backlog", remaining),
        _problem("delivered after a later one of their session", reconciliation.out_of_order)
        if ordered
        else "",
        _problem("lost by the redrive", lost_by_redrive),
    )
    return Verdict(
        reconciliation=reconciliation,
        explained=explained,
        problems=tuple(problem for problem in problems if problem),
    )


def explain(
    duplicated: dict[MessageKey, int],
    copies: Iterable[DeliveredCopy],
    windows: Sequence[FaultWindow],
    log: SenderLog,
) -> tuple[Counter[str], list[MessageKey]]:
    """Return the explanations with their numbers, and the duplicates that have none.

    A sender may send a message to two places if its call failed, or if a path failed over or a
    fault was active during the call. The syphon may send a message twice if its completion was
    lost, so a fault was active between the two deliveries.
    """
    times: dict[MessageKey, list[float]] = {}
    for copy in copies:
        if copy.key in duplicated:
            times.setdefault(copy.key, []).append(copy.time)
    ambiguous = log.ambiguous()
    reasons: Counter[str] = Counter()
    unexplained = []
    for key, deliveries in times.items():
        sender_reason = SENT_AGAIN if key in ambiguous else _reason_of_call(key, windows, log)
        for first, second in pairwise(sorted(deliveries)):
            reason = sender_reason or _active_fault(windows, first, second)
            if reason is not None:
                reasons[reason] += 1
            else:
                unexplained.append(key)
    return reasons, unexplained


def _reason_of_call(key: MessageKey, windows: Sequence[FaultWindow], log: SenderLog) -> str | None:
    if key not in log.calls:
        return None
    start, end = log.calls[key]
    if any(start <= time <= end for time in log.rerouted):
        return SENT_ELSEWHERE
    return next(
        (window.name for window in windows if window.start <= end and window.end >= start), None
    )


def _active_fault(windows: Sequence[FaultWindow], first: float, second: float) -> str | None:
    """Return a fault that was active between two deliveries, or shortly before them."""
    for slack_s in (0.0, SLACK_S):
        for window in windows:
            if window.start <= second and window.end >= first - slack_s:
                return window.name
    return None


def _problem(text: str, keys: Sequence[MessageKey]) -> str:
    if not keys:
        return ""
    shown = ", ".join(f"{key.id} of {key.path}" for key in keys[:MAX_KEYS])
    return f"{len(keys)} {text}: {shown}{', …' if len(keys) > MAX_KEYS else ''}"
