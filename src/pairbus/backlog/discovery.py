"""Find the backlog queues that exist: by a list of the namespace or, without the right to list, by
trying index after index."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from pairbus.backlog.target import NO_NAME, Target
from pairbus.errors import AmqpError, ConfigurationError, NotAuthorized
from pairbus.servicebus.administration import AdministrationClient
from pairbus.servicebus.backlog_paths import backlog_index, backlog_path, backlog_prefix
from pairbus.servicebus.limits import MAX_PATH, MAX_QUEUES

PROBE_GAP: Final = 10
"""Without a list, indexes beyond the expected number are tried until so many in a row have no
queue. It is the default number of backlog queues."""
"""The most that a namespace can have."""


@dataclass(frozen=True, slots=True)
class QueueListing:
    """The answer to the question which backlog queues exist."""

    primary_name: str
    expected: int
    """The number of backlog queues that the pairing is said to have."""
    indexes: tuple[int, ...] | None
    """All backlog queues that exist. None: they could not be listed."""
    error: AmqpError | None = None
    """Why not."""

    @property
    def not_listed(self) -> str | None:
        return None if self.error is None else self.error.description

    @property
    def refused(self) -> bool:
        """The namespace answered, and the right to list is missing."""
        return isinstance(self.error, NotAuthorized)

    def walk(self) -> "QueueSearch":
        return QueueSearch(self)


class QueueSearch:
    """Iterates over the indexes of backlog queues: those that were listed or, without a list, all
    that are worth trying. The caller reports an index that has no queue before it takes the
    next."""

    def __init__(self, listing: QueueListing) -> None:
        self.listing = listing
        self.searched_to: int | None = None if listing.indexes is not None else -1
        """The highest index that was tried; None: all queues that exist are known."""
        self.complete = listing.indexes is not None
        """No further index is worth trying."""
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
        """Report that the present index has no queue."""
        self._found.discard(self._index)

    def stop(self) -> None:
        """Report that the present index could not be tried. None beyond the expected number
        follows."""
        self._stopped = True

    @property
    def found(self) -> tuple[int, ...]:
        return tuple(sorted(self._found))

    @property
    def queue_mismatch(self) -> str | None:
        """The difference between the expected and the existing queues, in words; None while some
        are left to try."""
        return queue_mismatch(self.listing.expected, self.found) if self.complete else None


def queue_mismatch(expected: int, found: Sequence[int]) -> str | None:
    """Say in words how the expected number of queues differs from those that exist. None: it does
    not, or no queue exists at all."""
    unexpected = [index for index in found if index >= expected]
    missing = sorted(set(range(expected)).difference(found))
    if not found or not (unexpected or missing):
        return None
    absent = f"{describe_queues(missing)} {'does' if len(missing) == 1 else 'do'} not exist."
    told = f"--backlog-queues is {expected}, but "
    if not unexpected:
        return f"{told}{absent}"
    exist, them = ("exists", "it") if len(unexpected) == 1 else ("exist", "them")
    said = (
        f"{told}{describe_queues(unexpected)} {exist} too; a syphon with --backlog-queues "
        f"{expected} does not drain {them}."
    )
    return f"{said} {absent[0].upper()}{absent[1:]}" if missing else said


def describe_queues(indexes: Sequence[int]) -> str:
    """Name backlog queues by their indexes, in ascending order: `backlog queues 3, 5 to 9`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    shown = ", ".join(" to ".join(map(str, run)) for run in runs)
    return f"backlog {'queue' if len(indexes) == 1 else 'queues'} {shown}"


def list_backlog_queues(pair: Target) -> QueueListing:
    """List the backlog queues of a pairing. An error is in the result. Raises ConfigurationError
    where the primary's name is not known."""
    if pair.primary_name is None:
        raise ConfigurationError(NO_NAME)
    with AdministrationClient(pair.secondary.administration()) as administration:
        return listing_of(administration, pair.primary_name, pair.backlog_queue_count)


def listing_of(
    administration: AdministrationClient, primary_name: str, expected: int
) -> QueueListing:
    """The same over a connection that the caller has."""
    try:
        queues = administration.list_queues(backlog_prefix(primary_name))
    except AmqpError as exc:
        return QueueListing(primary_name, expected, None, exc)
    indexes = (backlog_index(primary_name, queue.path) for queue in queues)
    return QueueListing(
        primary_name, expected, tuple(sorted({i for i in indexes if i is not None}))
    )
