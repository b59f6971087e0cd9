"""`pairbus backlog`: look at what waits, without taking it."""

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from pairbus.amqp.client import Client
from pairbus.backlog.heaps import Heaps
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.pair import Pair, is_index
from pairbus.backlog.peek import peek as peek_messages
from pairbus.backlog.queues import CLOSE_S, BacklogLook, look_at
from pairbus.cli.backlog_screen import PeekProgress, show_heaps, show_messages, show_queues
from pairbus.cli.pair_options import (
    AsJson,
    BacklogQueues,
    PrimaryIfKnown,
    PrimaryName,
    Secondary,
    Timeout,
    pair_of,
)
from pairbus.cli.screen import complain, screens
from pairbus.errors import AmqpError, ConfigurationError, EntityNotFound, PairbusError

DONE, FAILED, WRONG, STOPPED = 0, 1, 2, 4
LIST, PEEK, DESTINATIONS = (
    f"Example: PAIRBUS_SECONDARY=… pairbus backlog {words}"
    for words in (
        "list --primary-name orders",
        "peek --primary-name orders --queue 0 --dead-letters",
        "destinations --primary-name orders",
    )
)
PEEKED_OF_EACH = 100
"""Messages of each queue that `list` looks at where it gets no counts."""

DeadLetters = Annotated[
    bool, typer.Option("--dead-letters", help="Those that are dead-lettered, instead.")
]


class _ListUnlessTold(TyperGroup):
    """`pairbus backlog --json` is `pairbus backlog list --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ListUnlessTold,
    epilog=LIST,
    help="Look at the backlog without taking anything: the queues (list, also when no command is "
    "given), messages (peek), or where they are going (destinations).",
)


@app.command("list", epilog=LIST)
def list_queues(
    secondary: Secondary,
    primary: PrimaryIfKnown = None,
    primary_name: PrimaryName = None,
    backlog_queues: BacklogQueues = 10,
    timeout: Timeout = 30,
    as_json: AsJson = False,
) -> None:
    """List the backlog queues: messages that wait, dead-lettered ones, size, age of the oldest.

    Costs an operation for each backlog queue, and one more where messages wait. Counts need the
    right to manage; with the right to listen alone, up to 100 messages of each are peeked, which
    costs an operation for each message.

    Exit status: 0 done; 1 failed: the secondary does not answer, or no backlog queue is there; 2 a
    wrong option.
    """
    out, err = screens()

    def run(pair: Pair) -> int:
        found = look_at(pair.secondary, pair.backlog_queues, peeked=PEEKED_OF_EACH)
        now_ms = _now_ms()
        if as_json:
            _echo(found.as_json(now_ms))
        elif found.there and found.messages is not None:
            show_queues(out, found, now_ms)
        return _complain_of(err, found, pair)

    _run(err, run, primary, secondary, primary_name, backlog_queues, timeout)


@app.command("peek", epilog=PEEK)
def peek(
    secondary: Secondary,
    primary: PrimaryIfKnown = None,
    primary_name: PrimaryName = None,
    backlog_queues: BacklogQueues = 10,
    queue: Annotated[
        str | None,
        typer.Option(
            help="One backlog queue, by its index or its path.", show_default="all of them"
        ),
    ] = None,
    dead_letters: DeadLetters = False,
    count: Annotated[int, typer.Option(min=1, help="How many messages at most.")] = 10,
    from_sequence: Annotated[
        int | None,
        typer.Option("--from", min=1, help="A sequence number to begin with; needs --queue."),
    ] = None,
    timeout: Timeout = 30,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="For programs: everything, the body as text or in base64."),
    ] = False,
) -> None:
    """Show messages of the backlog without taking them. Needs the right to listen.

    Costs an operation for each message.

    Exit status: 0 done; 1 failed: the secondary does not answer, or the backlog queue is not there;
    2 a wrong option.
    """
    out, err = screens()

    def run(pair: Pair) -> int:
        if queue is not None and not queue.strip("/ "):
            raise ConfigurationError("--queue: give an index, such as 0, or a path")
        if queue is None and from_sequence is not None:
            raise ConfigurationError("--from needs --queue: sequence numbers are those of a queue")
        paths = pair.backlog_queues if queue is None else (pair.queue(queue),)
        messages: list[BacklogMessage] = []

        def add(lot: list[BacklogMessage]) -> bool:
            messages.extend(lot)
            return len(messages) < count

        first = 1 if from_sequence is None else from_sequence
        there = _peek_all(
            pair, paths, add, dead_letters=dead_letters, from_sequence=first, count=count
        )
        if not there:
            return _none_there(err, paths)
        now_ms = _now_ms()
        if as_json:
            _echo([one.as_json(now_ms) for one in messages])
        else:
            show_messages(out, messages, now_ms, dead_letters=dead_letters)
        return DONE

    by_path = queue is not None and not is_index(queue)
    _run(
        err,
        run,
        primary,
        secondary,
        primary_name,
        backlog_queues,
        timeout,
        needs_name=not by_path,
    )


@app.command("destinations", epilog=DESTINATIONS)
def destinations(
    secondary: Secondary,
    primary: PrimaryIfKnown = None,
    primary_name: PrimaryName = None,
    backlog_queues: BacklogQueues = 10,
    dead_letters: DeadLetters = False,
    timeout: Timeout = 30,
    as_json: AsJson = False,
) -> None:
    """Add the backlog up by destination: messages, bytes, age of the oldest, and those without one.

    It peeks at every message of the backlog. Each is billed as an operation, or as several above
    64 KB: a million messages are a million operations. Needs the right to listen.

    Ctrl-C stops it, and shows what was found so far.

    Exit status: 0 done; 1 failed: the secondary does not answer, or no backlog queue is there; 2 a
    wrong option; 4 stopped before all was looked at.
    """
    out, err = screens()

    def run(pair: Pair) -> int:
        paths, heaps = pair.backlog_queues, Heaps()
        stopped = False
        there = 0
        with PeekProgress(err) as progress:
            try:
                if progress.shown:
                    looked = look_at(pair.secondary, paths, peeked=1)
                    progress.expect(_expected(looked, dead_letters=dead_letters))

                def add(lot: list[BacklogMessage]) -> bool:
                    heaps.add(lot)
                    progress.at(heaps.messages)
                    return True

                there = _peek_all(pair, paths, add, dead_letters=dead_letters)
            except KeyboardInterrupt:
                stopped = True
        if not there and not stopped:
            return _none_there(err, paths)
        now_ms = _now_ms()
        if as_json:
            found = [heap.as_json(now_ms) for heap in heaps.largest_first()]
            _echo(
                {
                    "messages": heaps.messages,
                    "without_destination": heaps.none,
                    "complete": not stopped,
                    "destinations": found,
                }
            )
        else:
            show_heaps(out, heaps, now_ms, dead_letters=dead_letters)
        if stopped:
            complain(err, "Stopped before all of the backlog was looked at.", "yellow")
        return STOPPED if stopped else DONE

    _run(err, run, primary, secondary, primary_name, backlog_queues, timeout)


def _run(
    err: Console,
    work: Callable[[Pair], int],
    *options: Any,
    needs_name: bool = True,
) -> None:
    """Do it for the pairing of the options, and end with its exit status."""
    try:
        ended = work(pair_of(*options, needs_name=needs_name))
    except AmqpError as exc:
        complain(err, exc.description)
        raise typer.Exit(FAILED) from exc
    except PairbusError as exc:
        complain(err, exc)
        raise typer.Exit(WRONG) from exc
    raise typer.Exit(ended)


def _peek_all(
    pair: Pair,
    paths: tuple[str, ...],
    add: Callable[[list[BacklogMessage]], bool],
    *,
    dead_letters: bool,
    from_sequence: int = 1,
    count: int | None = None,
) -> int:
    """Peek queue after queue until `add` says that it is enough; how many of them are there."""
    there = 0
    left = count
    client = Client(pair.secondary)
    try:
        for path in paths:
            try:
                for lot in peek_messages(
                    client,
                    path,
                    dead_letters=dead_letters,
                    from_sequence=from_sequence,
                    count=left,
                ):
                    left = None if left is None else left - len(lot)
                    if not add(lot):
                        return there + 1
                there += 1
            except EntityNotFound:
                continue
    finally:
        client.close(CLOSE_S)
    return there


def _complain_of(err: Console, found: BacklogLook, pair: Pair) -> int:
    if not found.there:
        return _none_there(err, pair.backlog_queues)
    if found.not_counted is not None and found.messages is not None:
        complain(
            err,
            f"Not counted: {found.not_counted}. Up to {PEEKED_OF_EACH} messages of each queue were "
            "peeked; a + means that there may be more.",
            "yellow",
        )
    if found.problem is not None:
        complain(err, found.problem)
        return FAILED
    return DONE


def _none_there(err: Console, paths: tuple[str, ...]) -> int:
    if len(paths) == 1:
        complain(err, f"There is no queue {paths[0]}.")
    else:
        complain(
            err,
            f"None of the {len(paths)} backlog queues is there ({paths[0]} and so on): was "
            "anything paired, and is this the primary's name?",
        )
    return FAILED


def _expected(found: BacklogLook, *, dead_letters: bool) -> int | None:
    """How many messages there are to look at; None: not known."""
    if dead_letters:
        return None if found.more_dead_lettered else found.dead_lettered
    return None if found.more_messages else found.messages


def _echo(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
