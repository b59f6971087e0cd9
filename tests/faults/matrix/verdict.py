"""What became of all messages of a run: none lost (X1), and whatever is there twice explained (X2).

Plain data in, plain data out.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from pairbus.drill.reconciliation import MessageKey, Reconciliation, SentMessage, reconcile
from tests.faults.matrix.notes import Notes

SLACK_S = 5.0
"""What lay in buffers when a fault ended may be worked off as late as this."""
SHOWN = 5
SENT_AGAIN = "its send failed and was tried again"
SENT_ELSEWHERE = "an answer came too late for its send, which went elsewhere, too"
UNSETTLED = "the syphon counts it: its lock was gone"


class Window(NamedTuple):
    """When a fault was under way, by the clock on the wall. A kill is over when it is done."""

    what: str
    began: float
    ended: float


class Copy(NamedTuple):
    """A message where it was going."""

    key: MessageKey
    at: float
    """When it came there, by the clock on the wall."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    reckoning: Reconciliation
    explained: Counter[str] = field(default_factory=Counter)
    """Why messages are there more than once, and how many of each."""
    problems: tuple[str, ...] = ()
    """What must not be."""


def judge(
    notes: Notes,
    copies: Sequence[Copy],
    *,
    stock: Iterable[SentMessage] = (),
    exact: Iterable[str],
    windows: Sequence[Window],
    unsettled: int,
    in_backlog: Iterable[MessageKey] = (),
    dead_lettered: Iterable[MessageKey] = (),
) -> Verdict:
    """`stock`: what was sent besides. `exact`: paths with duplicate detection. `unsettled`: how
    many duplicates the syphon itself knows of."""
    dead, waiting = list(dead_lettered), list(in_backlog)
    found = reconcile(
        [*notes.acknowledged.values(), *stock],
        delivered=[copy.key for copy in copies],
        in_backlog=waiting,
        dead_lettered=dead,
    )
    twice = [key for key in found.duplicated if key.path in set(exact)]
    explained, rest = explain(found.duplicated, copies, windows, notes)
    if rest and unsettled > 0:
        explained[UNSETTLED] += min(len(rest), unsettled)
    problems = (
        _some("lost", found.lost),
        _some("twice in spite of duplicate detection", twice),
        _some(f"twice, and nothing explains more than {unsettled} of them", rest)
        if len(rest) > unsettled
        else "",
        # Nothing is wrong with these messages, nor with where they are going.
        _some("dead-lettered", dead),
        _some("left in the backlog", waiting),
    )
    return Verdict(
        reckoning=found, explained=explained, problems=tuple(one for one in problems if one)
    )


def explain(
    duplicated: dict[MessageKey, int],
    copies: Iterable[Copy],
    windows: Sequence[Window],
    notes: Notes,
) -> tuple[Counter[str], list[MessageKey]]:
    """Reasons, and the copies that have none.

    The sender may have sent a message to two places: it was told of a failure; or within its call
    something was given up, or a fault was under way. The syphon may have: it comes again if a
    completion was lost after it had come, so between the two a fault was under way.
    """
    times: dict[MessageKey, list[float]] = {}
    for copy in copies:
        if copy.key in duplicated:
            times.setdefault(copy.key, []).append(copy.at)
    doubtful = notes.doubtful()
    reasons: Counter[str] = Counter()
    rest = []
    for key, moments in times.items():
        of_the_sender = SENT_AGAIN if key in doubtful else _of_the_call(key, windows, notes)
        for first, second in pairwise(sorted(moments)):
            reason = of_the_sender or _under_way(windows, first, second)
            if reason is not None:
                reasons[reason] += 1
            else:
                rest.append(key)
    return reasons, rest


def _of_the_call(key: MessageKey, windows: Sequence[Window], notes: Notes) -> str | None:
    if key not in notes.calls:
        return None
    began, ended = notes.calls[key]
    if any(began <= at <= ended for at in notes.given_up):
        return SENT_ELSEWHERE
    return next((one.what for one in windows if one.began <= ended and one.ended >= began), None)


def _under_way(windows: Sequence[Window], first: float, second: float) -> str | None:
    """A fault that was under way between two moments, or else not long before."""
    for slack_s in (0.0, SLACK_S):
        for window in windows:
            if window.began <= second and window.ended >= first - slack_s:
                return window.what
    return None


def _some(what: str, keys: Sequence[MessageKey]) -> str:
    if not keys:
        return ""
    shown = ", ".join(f"{key.id} of {key.path}" for key in keys[:SHOWN])
    return f"{len(keys)} {what}: {shown}{', …' if len(keys) > SHOWN else ''}"
