"""Reconciliation: find every message whose send was acknowledged, by its id.

Plain functions over plain data, which the drill and the fault tests share.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MessageKey(NamedTuple):
    """Identifies a message, in whatever queue it is."""

    path: str
    """The queue or topic of the primary that it was sent to."""
    id: str


class SentMessage(NamedTuple):
    """A message whose send was acknowledged."""

    key: MessageKey
    session: str | None = None
    number: int = 0
    """Its position in its session, in the order of sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """The location of all messages. Each acknowledged message is counted once: as delivered, else
    as in the backlog, else as dead-lettered, else as lost."""

    sent: int
    """The number of acknowledged messages."""
    delivered: int
    in_backlog: int
    dead_lettered: int
    lost: tuple[MessageKey, ...]
    duplicated: dict[MessageKey, int]
    """Messages that were delivered more than once, with the number of extra deliveries."""
    still_to_come: tuple[MessageKey, ...]
    """Messages that were delivered and are still in the backlog: they will be delivered again."""
    out_of_order: tuple[MessageKey, ...]
    """Messages that were delivered after a later message of their session."""
    not_acknowledged: tuple[MessageKey, ...]
    """Messages that arrived although their send failed or never returned."""
    by_path: dict[str, "Reconciliation"] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if no message is lost."""
        return not self.lost


def reconcile(
    sent: Iterable[SentMessage],
    *,
    delivered: Sequence[MessageKey],
    in_backlog: Iterable[MessageKey] = (),
    dead_lettered: Iterable[MessageKey] = (),
) -> Reconciliation:
    """Find all messages that were sent. `delivered` is in the order of delivery."""
    acknowledged = {message.key: message for message in sent}
    backlog, dead = set(in_backlog), set(dead_lettered)

    def reconcile_path(path: str | None) -> Reconciliation:
        """Reconcile the messages of one path, or of all paths."""

        def on_path(keys: Iterable[MessageKey]) -> list[MessageKey]:
            return [key for key in keys if path is None or key.path == path]

        expected = on_path(acknowledged)
        arrived = Counter(on_path(delivered))
        missing = [key for key in expected if key not in arrived]
        located = {*arrived, *on_path(backlog), *on_path(dead)}
        return Reconciliation(
            sent=len(expected),
            delivered=len(expected) - len(missing),
            in_backlog=sum(key in backlog for key in missing),
            dead_lettered=sum(key in dead and key not in backlog for key in missing),
            lost=tuple(key for key in missing if key not in backlog and key not in dead),
            duplicated={key: count - 1 for key, count in arrived.items() if count > 1},
            still_to_come=tuple(sorted(key for key in on_path(backlog) if key in arrived)),
            out_of_order=tuple(out_of_order(acknowledged, on_path(delivered))),
            not_acknowledged=tuple(sorted(located - acknowledged.keys())),
            by_path={name: reconcile_path(name) for name in paths} if path is None else {},
        )

    paths = sorted({key.path for key in acknowledged})
    return reconcile_path(None)


def out_of_order(
    acknowledged: dict[MessageKey, SentMessage], delivered: Iterable[MessageKey]
) -> Iterator[MessageKey]:
    """Yield messages whose first delivery came after a later message of their session."""
    highest: dict[tuple[str, str], int] = {}
    seen: set[MessageKey] = set()
    for key in delivered:
        message = acknowledged.get(key)
        if message is None or message.session is None or key in seen:
            continue
        seen.add(key)
        session = key.path, message.session
        if message.number < highest.get(session, message.number):
            yield key
        highest[session] = max(message.number, highest.get(session, message.number))
