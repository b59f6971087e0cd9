"""The status of a pairing, and its summary in one line. No I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from pairbus.backlog.contents import BacklogContents
from pairbus.backlog.discovery import describe_queues
from pairbus.backlog.json_values import iso_time
from pairbus.backlog.probe import ProbeResult
from pairbus.backlog.syphon_file import SyphonSummary


class PairingCondition(IntEnum):
    """The condition of a pairing. The values are exit statuses of `pairbus status`."""

    HEALTHY = 0
    """Both namespaces are available, and the backlog is empty."""
    FAILED = 1
    """A namespace is not available, or the backlog could not be read."""
    WAITING = 3
    """Messages wait in the backlog, or are dead-lettered."""
    UNCERTAIN = 4
    """No message was found, but not all backlog queues are known."""


@dataclass(frozen=True, slots=True)
class StatusSummary:
    """The condition of a pairing, and a line of text about it."""

    condition: PairingCondition
    text: str


@dataclass(frozen=True, slots=True)
class PairingInspection:
    """The result of an inspection: the two namespaces, the backlog and the syphon."""

    time_ms: int
    namespaces: Mapping[str, ProbeResult]
    """The probes of the primary and the secondary, by these names."""
    backlog: BacklogContents | None
    """None if the secondary is not available."""
    syphon: SyphonSummary | None = None
    """None if no status file was given."""

    @property
    def summary(self) -> StatusSummary:
        return summarize(self.namespaces, self.backlog, self.syphon)

    def to_json(self) -> dict[str, Any]:
        """Return everything for `json.dumps`."""
        summary = self.summary
        return {
            **{role: probe.to_json() for role, probe in self.namespaces.items()},
            "backlog": None if self.backlog is None else self.backlog.to_json(self.time_ms),
            "syphon": None if self.syphon is None else asdict(self.syphon),
            "summary": summary.text,
            "exit_status": int(summary.condition),
            "time": iso_time(self.time_ms),
        }


def summarize(
    namespaces: Mapping[str, ProbeResult],
    backlog: BacklogContents | None,
    syphon: SyphonSummary | None,
) -> StatusSummary:
    """Summarize a status. `backlog` is None if it was not inspected."""
    failed = PairingCondition.FAILED
    if not any(probe.available or probe.unauthorized for probe in namespaces.values()):
        return StatusSummary(failed, "Neither namespace is available.")
    failures = [
        f"The {role} {'rejects the token' if probe.unauthorized else 'is not available'}."
        for role, probe in namespaces.items()
        if not probe.available
    ]
    if backlog is None:
        return StatusSummary(failed, " ".join([*failures, "The backlog could not be read."]))
    if not backlog.found:
        failures.append(
            "No backlog queue was found. Either no sender has paired yet, or the name of the "
            "primary is wrong."
        )
    elif backlog.problem is not None:
        failures.append("The backlog could not be read.")
    messages = _messages(backlog, syphon)
    if failures:
        readable = backlog.found and backlog.problem is None
        rest = messages or (_empty(backlog) if readable else "")
        return StatusSummary(failed, " ".join([*failures, rest]).rstrip())
    if messages:
        return StatusSummary(PairingCondition.WAITING, messages)
    condition = PairingCondition.HEALTHY if backlog.complete else PairingCondition.UNCERTAIN
    return StatusSummary(condition, f"Both namespaces are available. {_empty(backlog)}")


def _empty(backlog: BacklogContents) -> str:
    """Claim no more than is known: without a list of queues, others may exist."""
    if backlog.searched_to is None:
        return "The backlog is empty."
    indexes = range(backlog.searched_to + 1)
    are = "is" if len(indexes) == 1 else "are"
    return (
        f"{_capitalized(describe_queues(indexes))} {are} empty. Others may exist, because the "
        "queues could not be listed."
    )


def _messages(backlog: BacklogContents, syphon: SyphonSummary | None) -> str:
    """Describe the messages in the backlog. Empty if there are none."""
    sentences = []
    if backlog.messages:
        count = _count(backlog.messages, "message waits", "messages wait")
        text = f"{_at_least(backlog.more_messages)}{count} in the backlog{_syphon_clause(syphon)}."
        sentences.append(_capitalized(text))
        sentences.extend(_unexpected(backlog))
    if backlog.dead_lettered:
        count = _count(backlog.dead_lettered, "message is", "messages are")
        text = f"{_at_least(backlog.more_dead_lettered)}{count} dead-lettered."
        sentences.append(f"{_capitalized(text)} See: pairbus dead-letters list")
    return " ".join(sentences)


def _unexpected(backlog: BacklogContents) -> list[str]:
    """Describe the messages in queues beyond the expected count."""
    queues = [
        queue for queue in backlog.queues if queue.index >= backlog.expected and queue.messages
    ]
    if not queues:
        return []
    more = _at_least(any(queue.more_messages for queue in queues))
    count = _count(sum(queue.messages or 0 for queue in queues), "of them is", "of them are")
    names = describe_queues([queue.index for queue in queues])
    return [_capitalized(f"{more}{count} in {names}, beyond --backlog-queues {backlog.expected}.")]


def _syphon_clause(syphon: SyphonSummary | None) -> str:
    if syphon is None:
        return ""
    if not syphon.running:
        return ", and no syphon is running"
    if syphon.paused:
        return ", and the syphon is paused"
    problem = ", and the syphon reports a problem"
    return ", and a syphon is running" if syphon.problem is None else problem


def _at_least(more: bool) -> str:
    return "at least " if more else ""


def _capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
