"""The actions of an operator: each says what it will do and what it costs, before it is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pairbus.backlog.dead_letter_filter import DeadLetterFilter
from pairbus.backlog.dead_letter_source import DeadLetterSource
from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.backlog.target import InspectionTarget
from pairbus.console.estimates import MessageEstimate, shown
from pairbus.console.inspection import NamespaceInspection
from pairbus.console.ledger_cost import OutagePrice
from pairbus.console.redrives import RedriveJobs, RedriveRequest
from pairbus.console.senders import SenderRegistry
from pairbus.console.sentence import number
from pairbus.console.text import clean
from pairbus.cost.money import format_money
from pairbus.errors import ConfigurationError

FREE: Final = "This costs nothing."
OPERATIONS_PER_REDRIVE: Final = 4
"""Peek, receive, send and complete of each message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """An action that was not carried out yet."""

    name: str
    """For the audit log."""
    text: str
    cost: str = FREE
    details: Mapping[str, Any] = field(default_factory=dict)
    run: Callable[[], Mapping[str, Any]] = field(repr=False)
    """Carries out the action, and returns the answer, with `text` for the user. It may block."""

    def to_json(self) -> dict[str, str]:
        """Return the text that a user confirms."""
        return {"text": self.text, "cost": self.cost}


class ConsoleActions:
    """Plans the actions of a pairing. Errors of the input raise ConfigurationError."""

    def __init__(
        self,
        target: InspectionTarget,
        control: ControlFile,
        redrives: RedriveJobs,
        price: OutagePrice,
    ) -> None:
        self._target = target
        self._control = control
        self._redrives = redrives
        self._price = price

    def syphon(self, body: Mapping[str, Any]) -> PlannedAction:
        """Plan a change of the syphon's control file."""
        action = body.get("action")
        destination = _text(body, "destination")
        where = "the syphon" if destination is None else f"the drain to {clean(destination)}"
        rate = _number(body, "rate")
        match action:
            case "pause":
                change, text = _pause(destination), f"Pauses {where} until it is resumed."
                text += " The current micro-batch is finished. A restart does not end the pause."
            case "resume":
                change, text = _resume(destination), f"Resumes {where}."
            case "rate":
                Control().set_max_rate(rate, destination)  # raises if the rate is not valid
                change = _set_rate(rate, destination)
                limit = "the limit of its options" if rate is None else f"{rate:g} messages/s"
                text = f"Limits {where} to {limit}."
            case "reset":
                change, text = _reset, "Removes the pause and all rates that were set here."
            case _:
                raise ConfigurationError("The action must be pause, resume, rate or reset.")
        if not self._control.is_in_use():
            text += " No running syphon uses this control file; it applies when one starts."
        return PlannedAction(
            name=f"syphon {action}",
            text=text,
            details={"destination": destination, "rate": rate},
            run=lambda: {"text": _settings(self._control.update(change))},
        )

    def redrive(
        self, body: Mapping[str, Any], inspection: NamespaceInspection | None
    ) -> PlannedAction:
        """Plan a redrive of dead letters of the backlog queues."""
        reason, destination = _text(body, "reason"), _text(body, "destination")
        if destination is None and "destination" in body:
            raise ConfigurationError(
                "These messages name no destination. Use `pairbus dead-letters redrive --to PATH`."
            )
        count, rate = _number(body, "count"), _number(body, "rate")
        if count is not None and (count != int(count) or count < 1):
            raise ConfigurationError("The number of messages must be a whole number above 0.")
        if rate is not None and not 0 < rate < 1e12:
            raise ConfigurationError("The rate must be above 0 messages a second.")
        dry_run = body.get("dry_run") is True
        groups = () if inspection is None else inspection.dead_letters
        choice = DeadLetterFilter(
            reasons=_full_names([group.reason for group in groups], reason, "reason" in body),
            destinations=_full_names(
                [group.destination for group in groups], destination, destination is not None
            ),
            count=None if count is None else int(count),
        )
        source = self._source(inspection)
        if self._target.primary is None and not dry_run:
            raise ConfigurationError(
                "The primary is unknown to the console, and the messages belong there. Start it "
                "with --primary."
            )
        request = RedriveRequest(source=source, choice=choice, max_rate=rate, dry_run=dry_run)
        expected = _expected(groups, choice)
        text, cost = self._describe_redrive(request, expected)
        return PlannedAction(
            name="redrive (dry run)" if dry_run else "redrive",
            text=text,
            cost=cost,
            details={"reason": reason, "destination": destination, "count": count, "rate": rate},
            run=lambda: {"id": self._redrives.start(request), "text": "The redrive was started."},
        )

    def cancel_redrive(self, id: str) -> PlannedAction:
        """Plan the cancellation of a redrive."""

        def run() -> Mapping[str, Any]:
            if not self._redrives.cancel(id):
                raise ConfigurationError("This redrive is not known.")
            return {"text": "The redrive ends after the messages that are being sent."}

        return PlannedAction(
            name="cancel redrive",
            text="Cancels the redrive after the messages that are being sent. Nothing is lost.",
            details={"id": clean(id, 64)},
            run=run,
        )

    def mark_healthy(
        self, body: Mapping[str, Any], senders: SenderRegistry, now: float
    ) -> PlannedAction:
        """Plan to tell the senders that a path is healthy. `run` belongs to the thread of the
        registry."""
        path = _text(body, "path")
        if path is None:
            raise ConfigurationError("The path is missing.")
        count = len(senders.senders_to_mark(path, now))
        if not count:
            raise ConfigurationError(
                f"No sender that reports has {clean(path)} in failover or draining."
            )
        noun = "sender sends" if count == 1 else "senders send"
        return PlannedAction(
            name="mark healthy",
            text=f"{number(count)} {noun} to {clean(path)} in the primary again, with the next "
            "report. If the primary does not accept messages, failover follows again. Messages in "
            "the backlog may be delivered after newer ones.",
            details={"path": path},
            run=lambda: {"text": _marked(senders.mark_healthy(path, now), path)},
        )

    def _source(self, inspection: NamespaceInspection | None) -> DeadLetterSource:
        entities = self._target.backlog_queues
        if inspection is not None and inspection.backlog is not None:
            found = tuple(queue.path for queue in inspection.backlog.queues if queue.exists)
            entities = found or entities
        target = self._target.primary or self._target.secondary  # not used by a dry run
        return DeadLetterSource(
            namespace=self._target.secondary, entities=entities, in_backlog=True, target=target
        )

    def _describe_redrive(
        self, request: RedriveRequest, expected: tuple[int, int]
    ) -> tuple[str, str]:
        matching, total = expected
        choice = request.choice
        messages = matching if choice.count is None else min(choice.count, matching)
        reason = ""
        if choice.reasons:
            name = clean(choice.reasons[0])
            reason = f" with the reason {name}" if name else " without a reason"
        whither = f" to {clean(choice.destinations[0])}" if choice.destinations else ""
        which = f"about {number(messages)} dead letters{reason}"
        # All dead letters are peeked, to find those that match.
        operations = total + (0 if request.dry_run else messages * (OPERATIONS_PER_REDRIVE - 1))
        money = format_money(self._price.money(operations))
        currency = self._price.prices.currency
        cost = f"About {number(operations)} operations, {money} {currency}."
        if request.dry_run:
            return f"Reads the dead letters, and counts {which}{whither}. Moves nothing.", cost
        rate = "" if request.max_rate is None else f", at most {request.max_rate:g} a second"
        text = f"Moves {which}{whither or ' to their destinations'}{rate}."
        return f"{text} A message that its destination refuses stays a dead letter.", cost


def _full_names(known: Sequence[str | None], name: str | None, is_given: bool) -> tuple[str, ...]:
    """Return the names that a name of the snapshot stands for: long ones are cut off there. The
    empty string stands for messages without a reason."""
    if not is_given:
        return ()
    if name is None:
        return ("",)
    full = {other for other in known if other is not None and shown(other) == name}
    return tuple(sorted(full)) or (name,)


def _expected(groups: Sequence[MessageEstimate], choice: DeadLetterFilter) -> tuple[int, int]:
    """Return the number of dead letters that match, and of all, as far as it is known."""
    matching = sum(
        group.messages
        for group in groups
        if (not choice.reasons or (group.reason or "") in choice.reasons)
        and (not choice.destinations or group.destination in choice.destinations)
    )
    return round(matching), round(sum(group.messages for group in groups))


def _settings(control: Control) -> str:
    return " ".join(control.describe() or ["The syphon is not paused, and no rate is set."])


def _marked(count: int, path: str) -> str:
    noun = "sender gets" if count == 1 else "senders get"
    return f"{number(count)} {noun} the command for {clean(path)} with the next report."


def _pause(destination: str | None) -> Callable[[Control], Control]:
    return lambda control: control.pause(destination)


def _resume(destination: str | None) -> Callable[[Control], Control]:
    return lambda control: control.resume(destination)


def _set_rate(rate: float | None, destination: str | None) -> Callable[[Control], Control]:
    return lambda control: control.set_max_rate(rate, destination)


def _reset(control: Control) -> Control:
    return replace(control, paused=False, paused_destinations=(), max_rate=None, max_rates={})


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > 1000:
        raise ConfigurationError(f"{key} must be text of at most 1,000 characters.")
    return value


def _number(body: Mapping[str, Any], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        raise ConfigurationError(f"{key} must be a number.")
    return value
