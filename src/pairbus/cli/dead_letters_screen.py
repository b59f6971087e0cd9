"""The output of `pairbus dead-letters`: tables, progress and totals."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from pairbus.backlog.dead_letter_groups import DeadLetterGroups
from pairbus.backlog.redrive_outcome import RedriveOutcome
from pairbus.backlog.redrive_plan import RedrivePlan
from pairbus.cli.backlog_screen import NO_DESTINATION, print_lines
from pairbus.cli.console import print_warning
from pairbus.cli.formatting import age, printable, size
from pairbus.cli.tables import add_row, natural_width, new_table, print_table

NO_REASON = "(none)"
LINE_S = 5.0
"""The interval of progress lines without a terminal."""
NARROW = 80
"""Columns of a terminal below which a table is hard to read."""
MAX_REFUSALS = 10
"""Refusals that are printed, each with its own reason."""


def dead_letters(count: int) -> str:
    """Return a number with the word "dead letter" or "dead letters"."""
    return f"{count:,} dead letter" if count == 1 else f"{count:,} dead letters"


def print_rows(
    out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]
) -> None:
    """Print a table, whose text is wrapped, or lines for each row on a narrow terminal."""
    table = new_table(out, columns, numbers)
    for row in rows:
        add_row(table, row)
    if out.is_terminal and out.width < min(natural_width(out, table), NARROW):
        for row in rows:
            print_lines(out, columns, row)
    elif rows:
        print_table(out, table)


def print_groups(out: Console, groups: DeadLetterGroups, now_ms: int, where: str) -> None:
    rows = [
        (
            printable(group.reason or NO_REASON),
            NO_DESTINATION if group.destination is None else printable(group.destination),
            f"{group.messages:,}",
            size(group.bytes),
            age(group.oldest_ms, now_ms),
            printable(group.description or ""),
        )
        for group in groups.largest_first()
    ]
    columns = ("reason", "destination", "messages", "size", "oldest", "first description")
    print_rows(out, columns, rows, ("messages", "size", "oldest"))
    if not rows:
        out.print(escape(f"No dead letters in {where}."))
        return
    count = "1 group" if len(rows) == 1 else f"{len(rows):,} groups"
    out.print(
        escape(
            f"{dead_letters(groups.messages)}, {size(groups.bytes)}, {count} in {where}. Nothing "
            "was received or moved."
        )
    )


def print_plan(
    out: Console,
    plan: RedrivePlan,
    *,
    purge: bool,
    windows: Mapping[str, timedelta] = MappingProxyType({}),
) -> None:
    """Print what a redrive would move. `windows` are the time windows of duplicate detection, by
    entity."""
    if not purge:
        rows = [
            (NO_DESTINATION if path is None else printable(path), f"{count:,}")
            for path, count in sorted(
                plan.destinations.items(), key=lambda entry: (-entry[1], entry[0] or "")
            )
        ]
        print_rows(out, ("destination", "messages"), rows, ("messages",))
    for entity, window in windows.items():
        count, numbers = plan.duplicates.get(entity, 0), plan.queues.get(entity, ())
        out.print(
            escape(
                f"{printable(entity)} has duplicate detection and drops messages whose ids it has "
                f"seen within the last {window}: {count:,} of {dead_letters(len(numbers))} would "
                f"stay.{' Redrive them later, or with --to another queue.' if count else ''}"
            )
        )
    verb = "deleted" if purge else "moved"
    moved = len(plan) - sum(plan.duplicates.values())
    others = f" {plan.others:,} others would stay." if plan.others else ""
    out.print(f"{dead_letters(moved)} would be {verb}.{others} Nothing was received or moved.")


class RedriveScreen:
    """Shows the progress of a redrive: a bar on a terminal, lines elsewhere."""

    def __init__(self, out: Console, text: str, total: int | None, *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._visible = out.is_terminal and not quiet
        self._total = total
        self._started = self._printed = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn(escape(text)),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", style="yellow"),
            console=out,
            transient=True,
        )
        self._task = self._progress.add_task("", total=total, rate="", note="")

    def __enter__(self) -> "RedriveScreen":
        if self._visible:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._visible:
            self._progress.stop()

    def show(self, outcome: RedriveOutcome) -> None:
        """Show the outcome so far."""
        refused = outcome.refused.total()
        self.show_count(outcome.handled, f"{refused:,} refused" if refused else "")

    def show_count(self, count: int, note: str = "") -> None:
        """Show a number of messages."""
        now = time.monotonic()
        rate = count / max(now - self._started, 0.001)
        if self._visible:
            self._progress.update(self._task, completed=count, rate=f"{rate:,.0f}/s", note=note)
        elif not self._quiet and now - self._printed >= LINE_S and self._total is not None:
            self._printed = now
            minutes, seconds = divmod(round(max(self._total - count, 0) / max(rate, 0.001)), 60)
            refused = f", {note}" if note else ""
            self._out.print(
                f"{count:,} of {self._total:,}{refused}, {rate:,.0f}/s, {minutes // 60}:"
                f"{minutes % 60:02}:{seconds:02} to go"
            )


def print_outcome(out: Console, err: Console, outcome: RedriveOutcome, *, purge: bool) -> None:
    """Print the totals of a redrive or purge, and what stays with its reason."""
    verb = "deleted" if purge else "moved"
    if not purge:
        for path, count in sorted(outcome.moved.items()):
            out.print(escape(f"  {printable(path)}: {count:,} moved"))
    refusals = outcome.refused.most_common()
    for (path, reason), count in refusals[:MAX_REFUSALS]:
        print_warning(
            err, f"  {printable(path) or NO_DESTINATION}: {count:,} refused: {printable(reason)}"
        )
    if len(refusals) > MAX_REFUSALS:
        rest = sum(count for _, count in refusals[MAX_REFUSALS:])
        print_warning(err, f"  {rest:,} more refused, with {len(refusals) - MAX_REFUSALS} reasons")
    for path, error in sorted(outcome.errors.items()):
        print_warning(err, f"  {printable(path)} does not accept messages: {printable(error)}")
    parts = [f"{dead_letters(outcome.moved.total())} {verb}"]
    if outcome.refused:
        parts.append(f"{outcome.refused.total():,} REFUSED (they stay dead letters)")
    if outcome.left:
        parts.append(f"{outcome.left.total():,} not tried or not accepted yet")
    if outcome.gone:
        parts.append(f"{outcome.gone:,} taken by another receiver")
    out.print(f"{', '.join(parts)}.")
    if outcome.unsettled:
        print_warning(
            err,
            f"{dead_letters(outcome.unsettled)} were {verb} and could not be removed from the "
            "dead-letter queue. A later redrive sends them again, with the same ids.",
        )
