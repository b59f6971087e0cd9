"""The sentence on top of the page, its level, and the problems in words. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pairbus.console.text import clean
from pairbus.events import PathStatus

Level = Literal["good", "warning", "bad"]
_ORDER: Final[tuple[Level, ...]] = ("good", "warning", "bad")
_THIN_SPACE: Final = "\u202f"
"""Separates thousands, and does not break lines."""
_MAX_NAME: Final = 80
"""The most characters of names in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts that decide about the level and the sentence."""

    paths: Mapping[PathStatus, Sequence[str]] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    senders: int = 0
    silent: int = 0
    without_secondary: int = 0
    """Senders that report, and that cannot reach the secondary."""
    foreign: tuple[tuple[str, str], ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """The problem of each namespace that the console cannot reach, by role."""
    inspected: bool = False
    waiting: int | None = None
    waiting_is_lower_bound: bool = False
    """The messages were peeked and not counted."""
    destinations: tuple[str, ...] = ()
    """The largest first."""
    backlog_problem: str | None = None
    queue_mismatch: str | None = None
    dead_letters: int = 0
    syphon: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def in_state(self, status: PathStatus) -> Sequence[str]:
        """Return the paths in a state."""
        return self.paths.get(status, ())


@dataclass(frozen=True, slots=True)
class Description:
    """The level, the sentence and the problems."""

    level: Level
    sentence: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Statement:
    level: Level
    text: str


def describe(situation: Situation) -> Description:
    """Describe a situation. The sentence says if sending works, and what waits."""
    statements = [_sending(situation), *_backlog(situation)]
    problems = [*_problems(situation)]
    level = max((each.level for each in (*statements, *problems)), key=_ORDER.index)
    return Description(
        level,
        " ".join(statement.text for statement in statements),
        tuple(problem.text for problem in problems),
    )


def number(value: int) -> str:
    """Return a number with thin spaces between thousands."""
    return f"{value:,}".replace(",", _THIN_SPACE)


def duration(seconds: float) -> str:
    """Return a duration as the page writes it: 40 s, 4 min, 2 h 30 min, 3 d 1 h."""
    whole = max(1, int(seconds + 0.5))
    if whole < 100:
        return f"{whole} s"
    minutes = int(whole / 60 + 0.5)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{number(days)} d {hours} h" if hours else f"{number(days)} d"


def _sending(situation: Situation) -> _Statement:
    failed, suspect = (
        situation.in_state(status) for status in (PathStatus.FAILOVER, PathStatus.SUSPECT)
    )
    if failed:
        if situation.without_secondary:
            return _Statement(
                "bad",
                f"Sending fails for {_names(failed)}: neither namespace is available to "
                f"{_count(situation.without_secondary, 'sender', 'senders')}.",
            )
        return _Statement(
            "bad", f"Failover: messages for {_names(failed)} are stored in the backlog."
        )
    if suspect:
        return _Statement("bad", f"Sends to {_names(suspect)} fail; failover follows.")
    if not situation.senders:
        return _without_senders(situation)
    if situation.senders == situation.silent:
        return _Statement("bad", "It is not known if sending works: all senders are silent.")
    return _Statement("good", "Sending works.")


def _without_senders(situation: Situation) -> _Statement:
    if "primary" in situation.unavailable:
        return _Statement("bad", "The primary is not available. No sender reports.")
    if not situation.inspected:
        return _Statement("warning", "Nothing is known yet. No sender reports.")
    return _Statement("good", "The namespaces are available. No sender reports.")


def _backlog(situation: Situation) -> Iterator[_Statement]:
    waiting, syphon = situation.waiting, situation.syphon
    if waiting is None:
        if situation.inspected:
            yield _Statement("bad", "The backlog could not be read.")
        return
    if not waiting:
        if not situation.in_state(PathStatus.FAILOVER):  # it fills, and was counted before
            yield _Statement("good", "The backlog is empty.")
        return
    names = f" for {_names(situation.destinations)}" if situation.destinations else ""
    least = "At least " if situation.waiting_is_lower_bound else ""
    text = f"{least}{_count(waiting, 'message waits', 'messages wait')}{names}; "
    if syphon.get("running"):
        level: Level = "warning"
        if syphon.get("paused"):
            text += "the syphon is paused."
        elif syphon.get("seconds_to_go") is not None:
            text += f"the drain needs about {duration(syphon['seconds_to_go'])}."
        elif not syphon.get("healthy"):
            level, text = "bad", f"{text}the syphon makes no progress."
        else:
            text += "the syphon is running."
    elif syphon.get("known"):
        level, text = "bad", f"{text}no syphon is running."
    else:
        level, text = "warning", f"{text}it is not known if a syphon is running."
    yield _Statement(level, text)


def _problems(situation: Situation) -> Iterator[_Statement]:
    for role, problem in situation.unavailable.items():
        yield _Statement("bad", f"The {role} is not available: {clean(problem)}.")
    if situation.without_secondary and not situation.in_state(PathStatus.FAILOVER):
        senders = _count(situation.without_secondary, "sender", "senders")
        yield _Statement("bad", f"The secondary is not available to {senders}.")
    failed_over = (PathStatus.FAILOVER, PathStatus.DRAINING)
    event = "failover" if any(map(situation.in_state, failed_over)) else "failed sends"
    for cause in dict.fromkeys(situation.causes[:3]):
        yield _Statement("warning", f"Cause of the {event}: {cause}")
    if (draining := situation.in_state(PathStatus.DRAINING)) and not situation.waiting:
        yield _Statement("warning", f"{_names(draining)}: failback follows.")
    elif draining:
        yield _Statement(
            "warning", f"{_names(draining)}: the primary is back, and the backlog is drained first."
        )
    syphon = situation.syphon
    if syphon.get("problem") and (syphon.get("running") or situation.waiting):
        yield _Statement("bad", f"Syphon: {syphon['problem']}.")
    if situation.backlog_problem is not None:
        yield _Statement("bad", f"Backlog: {clean(situation.backlog_problem)}.")
    if situation.dead_letters:
        messages = _count(situation.dead_letters, "message is", "messages are")
        yield _Statement("warning", f"{messages} dead-lettered.")
    if situation.silent:
        silent = _count(situation.silent, "sender has", "senders have")
        yield _Statement("warning", f"{silent} stopped reporting.")
    if situation.queue_mismatch is not None:
        yield _Statement("warning", clean(situation.queue_mismatch, 1000))
    for host, primary in situation.foreign[:3]:
        yield _Statement(
            "warning",
            f"The sender on {host} reports the pairing {primary!r}, which this console does not "
            "show.",
        )
    for problem in situation.problems:
        yield _Statement("warning", problem)


def _names(names: Sequence[str]) -> str:
    """Return the names if there are one or two short ones, or else the first one and the number of
    others. Long names are cut: the tables of the page have them in full."""
    others = len(names) - 1
    if others == 1 and len(names[0] + names[1]) <= _MAX_NAME:
        return f"{names[0]} and {names[1]}"
    first = names[0] if len(names[0]) <= _MAX_NAME else f"{names[0][: _MAX_NAME - 1]}…"
    return f"{first} and {_count(others, 'other', 'others')}" if others else first


def _count(value: int, singular: str, plural: str) -> str:
    return f"{number(value)} {singular if value == 1 else plural}"
