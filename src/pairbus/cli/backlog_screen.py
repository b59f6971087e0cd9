"""What is to be seen of a backlog: tables and, where a table is too wide for a terminal, lines."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.queues import BacklogContents, QueueContents
from pairbus.cli.formatting import age, count, messages, printable, size, utc_time
from pairbus.cli.tables import add_row, natural_width, new_table, print_table
from pairbus.servicebus.backlog_paths import TRANSFER_SEGMENT

_HEAD = (
    "queue",
    "sequence",
    "enqueued",
    "age",
    "destination",
    "message id",
    "session",
    "size",
)
_NUMBERS = ("messages", "dead-lettered", "size", "oldest", "sequence", "age", "bytes")
NOWHERE = "nowhere"


def show_queues(out: Console, found: BacklogContents, now_ms: int) -> None:
    notes = [_note(one) for one in found.queues]
    head = ("queue", "messages", "dead-lettered", "size", "oldest", "")
    shown = new_table(out, head if any(notes) else head[:-1], _NUMBERS)
    for one, note in zip(found.queues, notes, strict=True):
        known = (
            count(one.messages, more=one.more_messages),
            count(one.dead_lettered, more=one.more_dead_lettered),
        )
        row = (
            index_of(one.path),
            *(known if one.there else ("", "")),
            size(one.size),
            age(one.oldest_ms, now_ms),
            note,
        )
        add_row(shown, row if any(notes) else row[:-1])
    folder = found.queues[0].path.rpartition("/")[0]
    out.print(f"Backlog queues of {escape(folder)}/")
    print_table(out, shown)
    queues = "1 backlog queue" if found.there == 1 else f"{found.there} backlog queues"
    if found.searched_to is not None:
        queues = f"the {queues} found up to index {found.searched_to}"
    out.print(
        f"{messages(count(found.messages, more=found.more_messages))}, "
        f"{count(found.dead_lettered, more=found.more_dead_lettered)} dead-lettered in {queues}."
    )


def _note(one: QueueContents) -> str:
    if one.problem is not None:
        return "not known"
    return "" if one.there else "not there"


def index_of(path: str) -> str:
    """A backlog queue as people call it, and as --queue takes it."""
    return printable(path.partition(f"/{TRANSFER_SEGMENT}/")[2] or path)


def show_messages(
    out: Console, found: Sequence[BacklogMessage], now_ms: int, *, dead_letters: bool
) -> None:
    last: tuple[str, ...] = ("reason", "description") if dead_letters else ("problem",)
    rows = [(*_cells(one, now_ms), *_why(one, dead_letters=dead_letters)) for one in found]
    if not dead_letters and not any(row[-1] for row in rows):
        last, rows = (), [row[:-1] for row in rows]
    head = (*_HEAD, *last)
    shown = new_table(out, head, _NUMBERS)
    for row in rows:
        add_row(shown, row)
    if out.is_terminal and natural_width(out, shown) > out.width:
        for row in rows:
            _show_lines(out, head, row)
    elif rows:
        print_table(out, shown)
    kind = ", dead-lettered," if dead_letters else ""
    out.print(f"{messages(count(len(found)))}{kind} shown. Nothing was taken.")


def _cells(one: BacklogMessage, now_ms: int) -> tuple[str, ...]:
    return (
        index_of(one.queue),
        "" if one.sequence_number is None else str(one.sequence_number),
        utc_time(one.enqueued_ms),
        age(one.enqueued_ms, now_ms),
        NOWHERE if one.destination is None else printable(one.destination),
        "" if one.message_id is None else printable(one.message_id),
        "" if one.session_id is None else printable(one.session_id),
        size(one.size),
    )


def _why(one: BacklogMessage, *, dead_letters: bool) -> tuple[str, ...]:
    if dead_letters:
        return printable(one.reason or ""), printable(one.description or "")
    if one.problem is None:
        return ("",)
    return (f"would be dead-lettered: {one.problem}: {printable(one.problem_description or '')}",)


def _show_lines(out: Console, head: Sequence[str], row: Sequence[str]) -> None:
    """One message where a table is too wide: a line for each thing that it says."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, min_width=max(map(len, head)))
    lines.add_column(overflow="fold")
    for name, cell in zip(head, row, strict=True):
        if cell:
            lines.add_row(name, Text(cell, "bold" if name == head[0] else ""))
    out.print(lines)
    out.print()


def show_heaps(
    out: Console, heaps: DestinationSummaries, now_ms: int, *, dead_letters: bool
) -> None:
    found = heaps.largest_first()
    poison = not dead_letters and any(heap.problem is not None for heap in found)
    last = ("problem",) if poison else ()
    shown = new_table(out, ("destination", "messages", "size", "oldest", *last), _NUMBERS)
    for heap in found:
        name = NOWHERE if heap.destination is None else printable(heap.destination)
        fate = "" if heap.problem is None else f"would be dead-lettered: {heap.problem}"
        cells = (name, f"{heap.messages:,}", size(heap.bytes), age(heap.oldest_ms, now_ms), fate)
        add_row(shown, cells if poison else cells[:-1])
    if found:
        print_table(out, shown)
    kind = ", dead-lettered" if dead_letters else ""
    out.print(
        f"{messages(count(heaps.messages))}{kind}, {heaps.none:,} without a destination. "
        "Nothing was taken."
    )


class PeekProgress:
    """A bar while messages are peeked, on a terminal; nothing elsewhere."""

    def __init__(self, err: Console) -> None:
        self.shown = err.is_terminal
        self._progress = Progress(
            TextColumn("looking at the backlog"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> "PeekProgress":
        if self.shown:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.shown:
            self._progress.stop()

    def expect(self, total: int | None) -> None:
        self._progress.update(self._task, total=total)

    def at(self, looked_at: int) -> None:
        self._progress.update(self._task, completed=looked_at)
