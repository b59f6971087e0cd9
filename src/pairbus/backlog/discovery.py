"""Find the backlog queues that exist: from a list of the namespace's queues or, without the right
to list them, by probing one index after another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from pairbus.amqp.serial import contiguous_ranges
from pairbus.backlog.target import InspectionTarget
from pairbus.errors import AmqpError, NotAuthorized
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.backlog_paths import backlog_index, backlog_path, backlog_prefix
from pairbus.servicebus.limits import MAX_PATH, MAX_QUEUES

PROBE_GAP: Final = 10
"""Without a list, indexes beyond the expected count are probed until this many in a row have no
queue. It is the default number of backlog queues."""


@dataclass(frozen=True, slots=True)
class QueueListing:
    """The backlog queues that a namespace lists, or the reason why it does not list them."""

    primary_name: str
    expected: int
    """The number of backlog queues that the pairing is configured with."""
    indexes: tuple[int, ...] | None
    """The indexes of all backlog queues that exist, or None if they could not be listed."""
    error: AmqpError | None = None
    """The reason why the queues could not be listed."""

    @property
    def listing_error(self) -> str | None:
        """The error as text."""
        return None if self.error is None else self.error.description

    @property
    def unauthorized(self) -> bool:
        """True if the namespace responded, and the right to list is missing."""
        return isinstance(self.error, NotAuthorized)

    def search(self) -> "QueueSearch":
        return QueueSearch(self)


class QueueSearch:
    """Iterates over the indexes of backlog queues: the listed ones or, without a list, those that
    are worth probing. The caller reports an index without a queue before it takes the next one."""

    def __init__(self, listing: QueueListing) -> None:
        self.listing = listing
        self.searched_to: int | None = None if listing.indexes is not None else -1
        """The highest index that was probed, or None if all queues that exist are known."""
        self.complete = listing.indexes is not None
        """True when no further index is worth probing."""
        self._found = set(listing.indexes or ())
        self._index = -1
        self._stopped = False

    def __iter__(self) -> Iterator[int]:
        for index in self._probe() if self.listing.indexes is None else self.listing.indexes:
            self._index = index
            self._found.add(index)
            yield index

    def _probe(self) -> Iterator[int]:
        expected, gap = self.listing.expected, 0
        for index in count():
            if index >= expected and (gap >= PROBE_GAP or not self._possible(index)):
                break
            yield index
            if index >= expected and self._stopped:
                self._found.discard(index)
                break
            self.searched_to = index
            gap = gap + 1 if index >= expected and index not in self._found else 0
        self.complete = True

    def _possible(self, index: int) -> bool:
        return not self._stopped and index < MAX_QUEUES and len(self.path(index)) <= MAX_PATH

    def path(self, index: int) -> str:
        return backlog_path(self.listing.primary_name, index)

    def missing(self) -> None:
        """Report that the current index has no queue."""
        self._found.discard(self._index)

    def stop(self) -> None:
        """Report that the current index could not be probed. No index beyond the expected count
        follows."""
        self._stopped = True

    @property
    def found(self) -> tuple[int, ...]:
        """The indexes of the queues found so far."""
        return tuple(sorted(self._found))

    @property
    def queue_mismatch(self) -> str | None:
        """The result of `queue_mismatch`, or None while the search is not complete."""
        return queue_mismatch(self.listing.expected, self.found) if self.complete else None


def queue_mismatch(expected: int, found: Sequence[int]) -> str | None:
    """Describe how the expected queues differ from those that exist. Return None if they do not
    differ, or if no queue exists at all."""
    unexpected = [index for index in found if index >= expected]
    missing = sorted(set(range(expected)).difference(found))
    if not found or not (unexpected or missing):
        return None
    absent = f"{describe_queues(missing)} {'does' if len(missing) == 1 else 'do'} not exist."
    intro = f"--backlog-queues is {expected}, but "
    if not unexpected:
        return f"{intro}{absent}"
    exist, them = ("exists", "it") if len(unexpected) == 1 else ("exist", "them")
    text = (
        f"{intro}{describe_queues(unexpected)} {exist} too; a syphon with --backlog-queues "
        f"{expected} does not drain {them}."
    )
    return f"{text} {absent[0].upper()}{absent[1:]}" if missing else text


def describe_listing_error(error: str, searched_to: int | None) -> str:
    """Say why the queues could not be listed, and which indexes were searched instead."""
    return (
        f"The queues could not be listed: {error}. Indexes above {searched_to} were not searched."
    )


def describe_queues(indexes: Sequence[int]) -> str:
    """Name backlog queues by their indexes, in ascending order: `backlog queues 3, 5 to 9`."""
    ranges = contiguous_ranges(indexes)
    text = ", ".join(f"{start}" if start == end else f"{start} to {end}" for start, end in ranges)
    return f"backlog {'queue' if len(indexes) == 1 else 'queues'} {text}"


def list_backlog_queues(target: InspectionTarget) -> QueueListing:
    """List the backlog queues of a pairing. An error of the namespace is part of the result. Raises
    ConfigurationError if the name of the primary is unknown."""
    primary_name = target.known_primary_name()
    with AdministrationClient(target.secondary.administration()) as administration:
        return listing_of(administration, primary_name, target.backlog_queue_count)


def listing_of(
    administration: AdministrationClient, primary_name: str, expected: int
) -> QueueListing:
    """List the backlog queues over a connection of the caller."""
    try:
        queues = administration.list_queues(backlog_prefix(primary_name))
    except AmqpError as exc:
        return QueueListing(primary_name, expected, None, exc)
    indexes = (backlog_index(primary_name, queue.path) for queue in queues)
    return QueueListing(
        primary_name, expected, tuple(sorted({i for i in indexes if i is not None}))
    )
