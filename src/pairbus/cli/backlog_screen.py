"""The output of `pairbus backlog`: tables, or lines if a table is too wide for the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pairbus.backlog.contents import BacklogContents, QueueContents
from pairbus.backlog.destinations import DestinationSummaries, DestinationSummary
from pairbus.backlog.message import BacklogMessage
from pairbus.cli.formatting import age, count, messages, printable, queues_found, size, utc_time
from pairbus.cli.tables import add_row, natural_width, new_table, print_table
from pairbus.servicebus.backlog_paths import TRANSFER_SEGMENT

_COLUMNS = (
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
NO_DESTINATION = "(none)"


def print_queues(out: Console, backlog: BacklogContents, now_ms: int) -> None:
    notes = [_note(queue) for queue in backlog.queues]
    columns = ("queue", "messages", "dead-lettered", "size", "oldest", "")
    table = new_table(out, columns if any(notes) else columns[:-1], _NUMBERS)
    for queue, note in zip(backlog.queues, notes, strict=True):
        counts = (
            count(queue.messages, more=queue.more_messages),
            count(queue.dead_lettered, more=queue.more_dead_lettered),
        )
        row = (
            queue_name(queue.path),
            *(counts if queue.exists else ("", "")),
            size(queue.size),
            age(queue.oldest_ms, now_ms),
            note,
        )
        add_row(table, row if any(notes) else row[:-1])
    prefix = backlog.queues[0].path.rpartition("/")[0]
    out.print(f"Backlog queues {escape(prefix)}/*")
    print_table(out, table)
    total = messages(count(backlog.messages, more=backlog.more_messages))
    dead_lettered = count(backlog.dead_lettered, more=backlog.more_dead_lettered)
    out.print(f"{total}, {dead_lettered} dead-lettered in {queues_found(backlog)}.")


def _note(queue: QueueContents) -> str:
    if queue.problem is not None:
        return "unknown"
    return "" if queue.exists else "does not exist"


def queue_name(path: str) -> str:
    """Return the index of a backlog queue, or the path of another queue. --queue accepts both."""
    return printable(path.partition(f"/{TRANSFER_SEGMENT}/")[2] or path)


def print_messages(
    out: Console, shown: Sequence[BacklogMessage], now_ms: int, *, dead_letters: bool
) -> None:
    last: tuple[str, ...] = ("reason", "description") if dead_letters else ("problem",)
    rows = [
        (*_cells(message, now_ms), *_problem_cells(message, dead_letters=dead_letters))
        for message in shown
    ]
    if not dead_letters and not any(row[-1] for row in rows):
        last, rows = (), [row[:-1] for row in rows]
    columns = (*_COLUMNS, *last)
    table = new_table(out, columns, _NUMBERS)
    for row in rows:
        add_row(table, row)
    if out.is_terminal and natural_width(out, table) > out.width:
        for row in rows:
            print_lines(out, columns, row)
    elif rows:
        print_table(out, table)
    kind = "dead-lettered " if dead_letters else ""
    text = messages(count(len(shown))).replace("message", f"{kind}message")
    out.print(f"{text} shown. Nothing was received or moved.")


def _cells(message: BacklogMessage, now_ms: int) -> tuple[str, ...]:
    return (
        queue_name(message.queue),
        "" if message.sequence_number is None else str(message.sequence_number),
        utc_time(message.enqueued_ms),
        age(message.enqueued_ms, now_ms),
        _destination(message.destination),
        "" if message.message_id is None else printable(message.message_id),
        "" if message.session_id is None else printable(message.session_id),
        size(message.size),
    )


def _destination(path: str | None) -> str:
    return NO_DESTINATION if path is None else printable(path)


def _problem_cells(message: BacklogMessage, *, dead_letters: bool) -> tuple[str, ...]:
    if dead_letters:
        return (
            printable(message.dead_letter_reason or ""),
            printable(message.dead_letter_description or ""),
        )
    if message.problem is None:
        return ("",)
    description = printable(message.problem_description or "")
    return (f"would be dead-lettered: {message.problem}: {description}",)


def print_lines(out: Console, columns: Sequence[str], row: Sequence[str]) -> None:
    """Print a message as one line per field."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, min_width=max(map(len, columns)))
    lines.add_column(overflow="fold")
    for name, cell in zip(columns, row, strict=True):
        if cell:
            lines.add_row(name, Text(cell, "bold" if name == columns[0] else ""))
    out.print(lines)
    out.print()


def print_destinations(
    out: Console, summaries: DestinationSummaries, now_ms: int, *, dead_letters: bool
) -> None:
    rows = summaries.largest_first()
    if rows:
        print_summaries(out, rows, now_ms, problems=not dead_letters)
    kind = " dead-lettered," if dead_letters else ","
    out.print(
        f"{messages(count(summaries.messages))}{kind} {summaries.without_destination:,} without a "
        "destination. Nothing was received or moved."
    )


def print_summaries(
    out: Console, summaries: Sequence[DestinationSummary], now_ms: int, *, problems: bool = True
) -> None:
    """Print a table of destinations. The column for problems is left out if there are none."""
    problems = problems and any(summary.problem is not None for summary in summaries)
    last = ("problem",) if problems else ()
    table = new_table(out, ("destination", "messages", "size", "oldest", *last), _NUMBERS)
    for summary in summaries:
        problem = "" if summary.problem is None else f"would be dead-lettered: {summary.problem}"
        cells = (
            _destination(summary.destination),
            f"{summary.messages:,}",
            size(summary.bytes),
            age(summary.oldest_ms, now_ms),
            problem,
        )
        add_row(table, cells if problems else cells[:-1])
    print_table(out, table)


class PeekProgress:
    """A progress bar while messages are peeked. Hidden if standard error is not a terminal."""

    def __init__(self, err: Console) -> None:
        self.visible = err.is_terminal
        self._progress = Progress(
            TextColumn("reading the backlog"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> "PeekProgress":
        if self.visible:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.visible:
            self._progress.stop()

    def set_total(self, total: int | None) -> None:
        self._progress.update(self._task, total=total)

    def update(self, peeked: int) -> None:
        self._progress.update(self._task, completed=peeked)
