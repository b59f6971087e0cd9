"""Every message whose send was acknowledged, looked for by its id wherever it can be (rule X1).

Plain data in, plain data out: the drill and the fault tests reckon alike.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MessageKey(NamedTuple):
    """One message, wherever it is."""

    path: str
    """Where it was sent: a queue or a topic of the primary."""
    id: str


class SentMessage(NamedTuple):
    """A message whose send was acknowledged."""

    key: MessageKey
    session: str | None = None
    number: int = 0
    """Its place in its session, in the order of sending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """Where the messages are. Each acknowledged one is counted once: as delivered if it was, else
    as in the backlog, else as dead-lettered, else as lost."""

    sent: int
    """Acknowledged."""
    delivered: int
    in_backlog: int
    dead_lettered: int
    lost: tuple[MessageKey, ...]
    duplicated: dict[MessageKey, int]
    """Messages that were delivered more than once, and how often more."""
    still_to_come: tuple[MessageKey, ...]
    """Messages that were delivered, and are in the backlog still: they come a second time."""
    out_of_order: tuple[MessageKey, ...]
    """Messages that came after a later one of their session."""
    not_acknowledged: tuple[MessageKey, ...]
    """Messages that are there though their senders were told that they failed, or nothing."""
    by_path: dict[str, "Reconciliation"] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Nothing is lost."""
        return not self.lost


def reconcile(
    sent: Iterable[SentMessage],
    *,
    delivered: Sequence[MessageKey],
    in_backlog: Iterable[MessageKey] = (),
    dead_lettered: Iterable[MessageKey] = (),
) -> Reconciliation:
    """Look for all that was sent. `delivered` is in the order of delivery."""
    known = {one.key: one for one in sent}
    backlog, dead = set(in_backlog), set(dead_lettered)

    def part(path: str | None) -> Reconciliation:
        def mine(keys: Iterable[MessageKey]) -> list[MessageKey]:
            return [key for key in keys if path is None or key.path == path]

        wanted = mine(known)
        arrived = Counter(mine(delivered))
        rest = [key for key in wanted if key not in arrived]
        return Reconciliation(
            sent=len(wanted),
            delivered=len(wanted) - len(rest),
            in_backlog=sum(key in backlog for key in rest),
            dead_lettered=sum(key in dead and key not in backlog for key in rest),
            lost=tuple(key for key in rest if key not in backlog and key not in dead),
            duplicated={key: count - 1 for key, count in arrived.items() if count > 1},
            still_to_come=tuple(sorted(key for key in mine(backlog) if key in arrived)),
            out_of_order=tuple(out_of_order(known, mine(delivered))),
            not_acknowledged=tuple(sorted({*arrived, *mine(backlog), *mine(dead)} - known.keys())),
            by_path={}
            if path is not None
            else {one: part(one) for one in sorted({key.path for key in known})},
        )

    return part(None)


def out_of_order(
    known: dict[MessageKey, SentMessage], delivered: Iterable[MessageKey]
) -> Iterable[MessageKey]:
    """Messages that first came after a later one of their session."""
    last: dict[tuple[str, str], int] = {}
    seen: set[MessageKey] = set()
    for key in delivered:
        one = known.get(key)
        if one is None or one.session is None or key in seen:
            continue
        seen.add(key)
        place = key.path, one.session
        if one.number < last.get(place, one.number):
            yield key
        last[place] = max(one.number, last.get(place, one.number))
