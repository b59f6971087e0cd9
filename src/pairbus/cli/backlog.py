"""`pairbus backlog`: look at what waits, without taking it."""

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from pairbus.amqp.client import Client
from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.discovery import QueueSearch, list_backlog_queues
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import peek as peek_messages
from pairbus.backlog.queues import CLOSE_S, BacklogContents, inspect_backlog
from pairbus.backlog.target import Target, is_index
from pairbus.cli.backlog_screen import PeekProgress, show_heaps, show_messages, show_queues
from pairbus.cli.console import consoles, print_error
from pairbus.cli.pairing_options import (
    AsJson,
    ExpectedQueues,
    PrimaryIfKnown,
    PrimaryName,
    Secondary,
    Timeout,
    target_of,
)
from pairbus.errors import (
    AmqpError,
    ConfigurationError,
    EntityNotFound,
    NotAuthorized,
    PairbusError,
)

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
    backlog_queues: ExpectedQueues = 10,
    timeout: Timeout = 30,
    as_json: AsJson = False,
) -> None:
    """List the backlog queues: messages that wait, dead-lettered ones, size, age of the oldest.

    All backlog queues that exist are shown, also those beyond --backlog-queues. Costs an operation
    for each backlog queue, one more where messages wait, and one for every 100 queues of the
    secondary. Listing and counting need the right to manage. With the right to listen alone, up to
    100 messages of each queue are peeked, which costs an operation for each message, and queues
    beyond --backlog-queues are tried until 10 indexes in a row have none.

    Exit status: 0 done; 1 failed: the secondary does not answer, or no backlog queue is there; 2 a
    wrong option.
    """
    out, err = consoles()

    def run(pair: Target) -> int:
        found = inspect_backlog(pair, list_backlog_queues(pair), peeked=PEEKED_OF_EACH)
        now_ms = _now_ms()
        if as_json:
            _echo(found.as_json(now_ms))
        elif found.there and found.messages is not None:
            show_queues(out, found, now_ms)
        return _complain_of(err, found)

    _run(err, run, primary, secondary, primary_name, backlog_queues, timeout)


@app.command("peek", epilog=PEEK)
def peek(
    secondary: Secondary,
    primary: PrimaryIfKnown = None,
    primary_name: PrimaryName = None,
    backlog_queues: ExpectedQueues = 10,
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

    Without --queue, messages of all backlog queues that exist are shown, also those beyond
    --backlog-queues. Costs an operation for each message, and one for every 100 queues of the
    secondary. Without the right to manage, queues beyond --backlog-queues are tried until 10
    indexes in a row have none.

    Exit status: 0 done; 1 failed: the secondary does not answer, or the backlog queue is not there;
    2 a wrong option.
    """
    out, err = consoles()

    def run(pair: Target) -> int:
        if queue is not None and not queue.strip("/ "):
            raise ConfigurationError("--queue: give an index, such as 0, or a path")
        if queue is None and from_sequence is not None:
            raise ConfigurationError("--from needs --queue: sequence numbers are those of a queue")
        messages: list[BacklogMessage] = []

        def add(lot: list[BacklogMessage]) -> bool:
            messages.extend(lot)
            return len(messages) < count

        first = 1 if from_sequence is None else from_sequence
        if queue is not None:
            path = pair.queue(queue)
            found = _peek_one(
                pair, path, add, dead_letters=dead_letters, from_sequence=first, count=count
            )
            if not found:
                print_error(err, f"There is no queue {path}.")
                return FAILED
        else:
            walk = list_backlog_queues(pair).walk()
            _peek_all(pair, walk, add, dead_letters=dead_letters, count=count)
            if not _warn_of_queues(err, walk):
                return FAILED
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
    backlog_queues: ExpectedQueues = 10,
    dead_letters: DeadLetters = False,
    timeout: Timeout = 30,
    as_json: AsJson = False,
) -> None:
    """Add the backlog up by destination: messages, bytes, age of the oldest, and those without one.

    It peeks at every message of the backlog. Each is billed as an operation, or as several above
    64 KB: a million messages are a million operations. Needs the right to listen. All backlog
    queues that exist are read, also those beyond --backlog-queues. Without the right to manage,
    these are tried until 10 indexes in a row have none.

    Ctrl-C stops it, and shows what was found so far.

    Exit status: 0 done; 1 failed: the secondary does not answer, or no backlog queue is there; 2 a
    wrong option; 4 stopped before all was looked at.
    """
    out, err = consoles()

    def run(pair: Target) -> int:
        heaps, walk = DestinationSummaries(), None
        stopped = False
        with PeekProgress(err) as progress:
            try:
                listing = list_backlog_queues(pair)
                if progress.shown:
                    looked = inspect_backlog(pair, listing, peeked=1)
                    progress.expect(_expected(looked, dead_letters=dead_letters))

                def add(lot: list[BacklogMessage]) -> bool:
                    heaps.add(lot)
                    progress.at(heaps.messages)
                    return True

                walk = listing.walk()
                _peek_all(pair, walk, add, dead_letters=dead_letters)
            except KeyboardInterrupt:
                stopped = True
        if walk is not None and not _warn_of_queues(err, walk) and not stopped:
            return FAILED
        now_ms = _now_ms()
        if as_json:
            found = [heap.as_json(now_ms) for heap in heaps.largest_first()]
            _echo(
                {
                    "messages": heaps.messages,
                    "without_destination": heaps.none,
                    "complete": not stopped,
                    "searched_to": None if walk is None else walk.searched_to,
                    "destinations": found,
                }
            )
        else:
            show_heaps(out, heaps, now_ms, dead_letters=dead_letters)
        if stopped:
            print_error(err, "Stopped before all of the backlog was looked at.", "yellow")
        return STOPPED if stopped else DONE

    _run(err, run, primary, secondary, primary_name, backlog_queues, timeout)


def _run(
    err: Console,
    work: Callable[[Target], int],
    *options: Any,
    needs_name: bool = True,
) -> None:
    """Do it for the pairing of the options, and end with its exit status."""
    try:
        ended = work(target_of(*options, needs_name=needs_name))
    except AmqpError as exc:
        print_error(err, exc.description)
        raise typer.Exit(FAILED) from exc
    except PairbusError as exc:
        print_error(err, exc)
        raise typer.Exit(WRONG) from exc
    raise typer.Exit(ended)


def _peek_one(
    pair: Target,
    path: str,
    add: Callable[[list[BacklogMessage]], bool],
    *,
    dead_letters: bool,
    from_sequence: int,
    count: int,
) -> bool:
    """Peek at a queue until `add` has enough; whether it exists."""
    client = Client(pair.secondary)
    try:
        for lot in peek_messages(
            client, path, dead_letters=dead_letters, from_sequence=from_sequence, count=count
        ):
            if not add(lot):
                break
    except EntityNotFound:
        return False
    finally:
        client.close(CLOSE_S)
    return True


def _peek_all(
    pair: Target,
    walk: QueueSearch,
    add: Callable[[list[BacklogMessage]], bool],
    *,
    dead_letters: bool,
    count: int | None = None,
) -> None:
    """Peek at queue after queue until `add` has enough."""
    left = count
    client = Client(pair.secondary)
    try:
        for index in walk:
            path = walk.path(index)
            try:
                for lot in peek_messages(client, path, dead_letters=dead_letters, count=left):
                    left = None if left is None else left - len(lot)
                    if not add(lot):
                        return
            except EntityNotFound:
                walk.missing()
            except NotAuthorized:
                if index < pair.backlog_queue_count or walk.searched_to is None:
                    raise
                walk.stop()  # a key may be for the expected queues alone
    finally:
        client.close(CLOSE_S)


def _warn_of_queues(err: Console, walk: QueueSearch) -> bool:
    """Say where the queues differ from those that are expected, and how far they were looked for.
    False: there are none."""
    if not walk.found:
        _complain_of_none(err, walk.path(0), walk.searched_to)
        return False
    if walk.complete:
        _warn(err, walk.queue_mismatch, walk.listing.not_listed, walk.searched_to)
    return True


def _warn(
    err: Console, mismatch: str | None, not_listed: str | None, searched_to: int | None
) -> None:
    if mismatch is not None:
        print_error(err, mismatch, "yellow")
    if not_listed is not None:
        print_error(
            err,
            f"Not listed: {not_listed}. Backlog queues with an index above {searched_to} were not "
            "looked for.",
            "yellow",
        )


def _complain_of(err: Console, found: BacklogContents) -> int:
    if not found.there and found.problem is None:
        _complain_of_none(err, found.queues[0].path, found.searched_to)
        return FAILED
    if found.messages is not None:
        _warn(err, found.queue_mismatch, found.not_listed, found.searched_to)
    if found.not_counted is not None and found.messages is not None:
        print_error(
            err,
            f"Not counted: {found.not_counted}. Up to {PEEKED_OF_EACH} messages of each queue were "
            "peeked; a + means that there may be more.",
            "yellow",
        )
    if found.problem is not None:
        print_error(err, found.problem)
        return FAILED
    return DONE


def _complain_of_none(err: Console, first: str, searched_to: int | None) -> None:
    far = "" if searched_to is None else f" up to index {searched_to}"
    print_error(
        err,
        f"No backlog queue was found: {first.removesuffix('0')} has none{far} in the secondary. "
        "Either no sender has paired yet, or the name of the primary is wrong.",
    )


def _expected(found: BacklogContents, *, dead_letters: bool) -> int | None:
    """How many messages there are to look at; None: not known."""
    if dead_letters:
        return None if found.more_dead_lettered else found.dead_lettered
    return None if found.more_messages else found.messages


def _echo(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
