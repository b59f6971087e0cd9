"""How a pairing is, from what was seen of it: the verdict of `pairbus status`. No I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pairbus.backlog.discovery import describe_queues
from pairbus.backlog.json_values import iso_time
from pairbus.backlog.queues import BacklogContents
from pairbus.errors import ConfigurationError

WELL, FAILED, WAITING, UNCERTAIN = 0, 1, 3, 4
SILENT_S: Final = 15.0
"""A syphon writes its status file about once a second. One that was silent for so long is not at
work, or hangs."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Whether a namespace answers."""

    host: str
    problem: str | None = None
    """Why not, in a sentence."""
    refused: bool = False
    """It is there, and does not take the token."""

    @property
    def answers(self) -> bool:
        return self.problem is None

    def as_json(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "answers": self.answers,
            "refused": self.refused,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class SyphonSummary:
    """What a syphon says of itself in its status file."""

    at_work: bool
    problem: str | None = None
    """Why it is unhealthy, or not at work."""
    moved: int = 0
    left: int | None = None
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class PairingVerdict:
    """All in one line, and the exit status for it."""

    status: int
    words: str


@dataclass(frozen=True, slots=True)
class PairingObservation:
    """All that one look found."""

    at_ms: int
    answers: Mapping[str, ProbeResult]
    """Of the primary and the secondary."""
    backlog: BacklogContents | None
    """None: the secondary does not answer."""
    syphon: SyphonSummary | None = None
    """None: nobody said where its status file is."""

    @property
    def verdict(self) -> PairingVerdict:
        return verdict(self.answers, self.backlog, self.syphon)

    def as_json(self) -> dict[str, Any]:
        """Everything, for `json.dumps`."""
        ended = self.verdict
        return {
            **{which: one.as_json() for which, one in self.answers.items()},
            "backlog": None if self.backlog is None else self.backlog.as_json(self.at_ms),
            "syphon": None if self.syphon is None else asdict(self.syphon),
            "verdict": ended.words,
            "exit_status": ended.status,
            "when": iso_time(self.at_ms),
        }


def parse_syphon_status(values: Any, now: float) -> SyphonSummary:
    """What a status file says; None: there is none. Raises ConfigurationError where it is the file
    of something else."""
    if values is None:
        return SyphonSummary(False, "there is no such file: it has not started")
    match values:
        case {
            "running": bool(running),
            "healthy": bool(healthy),
            "problem": str() | None as problem,
            "moved": dict() as moved,
            "left": int() | None as left,
            "rate": int() | float() as rate,
            "when": int() | float() as when,
        }:
            pass
        case _:
            raise ConfigurationError("it is not the status file of a syphon")
    total = sum(count for count in moved.values() if isinstance(count, int))
    silent_s = now - when
    if not running:
        problem = problem or "it has stopped"
    elif silent_s > SILENT_S:
        problem = f"it has said nothing for {silent_s:,.0f} s: it was ended, or hangs"
    elif healthy:
        problem = None
    else:
        problem = problem or "it is unhealthy"
    at_work = running and silent_s <= SILENT_S
    return SyphonSummary(at_work, problem, total, left, float(rate) if at_work else 0.0)


def verdict(
    answers: Mapping[str, ProbeResult],
    backlog: BacklogContents | None,
    syphon: SyphonSummary | None,
) -> PairingVerdict:
    """The whole in one line. `answers` are those of the primary and the secondary; a backlog that
    was not looked at is None."""
    wrong = [
        f"The {which} {'refuses the token' if one.refused else 'does not answer'}."
        for which, one in answers.items()
        if not one.answers
    ]
    if not any(one.answers or one.refused for one in answers.values()):
        return PairingVerdict(FAILED, "Neither namespace answers.")
    if backlog is None:
        return PairingVerdict(FAILED, " ".join([*wrong, "The backlog cannot be seen."]))
    if backlog.there == 0:
        wrong.append(
            "No backlog queue was found: either no sender has paired yet, or the name of the "
            "primary is wrong."
        )
    elif backlog.problem is not None:
        wrong.append("The backlog cannot be seen.")
    waiting = _what_waits(backlog, syphon)
    if wrong:
        seen = backlog.there > 0 and backlog.problem is None
        rest = waiting or (_nothing_waits(backlog) if seen else "")
        return PairingVerdict(FAILED, " ".join([*wrong, rest]).rstrip())
    if waiting:
        return PairingVerdict(WAITING, waiting)
    if not backlog.complete:
        return PairingVerdict(UNCERTAIN, f"Both namespaces answer. {_nothing_waits(backlog)}")
    return PairingVerdict(WELL, "Both namespaces answer, and nothing waits.")


def _nothing_waits(backlog: BacklogContents) -> str:
    """Claim no more than is known: without a list, there may be further queues."""
    if backlog.searched_to is None:
        return "Nothing waits."
    searched = describe_queues(range(backlog.searched_to + 1))
    return f"Nothing waits in {searched}; whether there are others is not known."


def _what_waits(backlog: BacklogContents, syphon: SyphonSummary | None) -> str:
    """Empty: nothing that anybody can see."""
    parts = []
    if backlog.messages:
        what = _count(backlog.messages, "message waits", "messages wait")
        parts.append(_upper(f"{_some(backlog.more_messages)}{what} in the backlog"))
        parts[-1] += _who_moves(syphon)
        parts.extend(_overlooked(backlog))
    if backlog.dead_lettered:
        what = _count(backlog.dead_lettered, "message is", "messages are")
        some = _some(backlog.more_dead_lettered)
        parts.append(
            _upper(f"{some}{what} dead-lettered: see pairbus backlog peek --dead-letters.")
        )
    return " ".join(parts)


def _overlooked(backlog: BacklogContents) -> list[str]:
    """Say how many messages are in queues that the given number does not include."""
    holding = [queue for queue in backlog.queues if queue.index >= backlog.expected]
    holding = [queue for queue in holding if queue.messages]
    if not holding:
        return []
    some = _some(any(queue.more_messages for queue in holding))
    what = _count(sum(queue.messages or 0 for queue in holding), "of them is", "of them are")
    where = describe_queues([queue.index for queue in holding])
    return [_upper(f"{some}{what} in {where}, beyond --backlog-queues {backlog.expected}.")]


def _who_moves(syphon: SyphonSummary | None) -> str:
    if syphon is None:
        return "."
    if not syphon.at_work:
        return ", and no syphon is at work."
    return ", and a syphon is at work." if syphon.problem is None else ", and the syphon is stuck."


def _some(more: bool) -> str:
    return "at least " if more else ""


def _upper(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
