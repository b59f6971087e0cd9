"""`pairbus backlog peek`: messages of the backlog."""

from typing import Annotated

import typer

from pairbus.backlog.discovery import QueueSearch, list_backlog_queues
from pairbus.backlog.message import BacklogMessage
from pairbus.backlog.peek import connected, peek_queues
from pairbus.backlog.peek import peek as peek_queue
from pairbus.backlog.target import InspectionTarget, is_index
from pairbus.cli.backlog_command import (
    DONE,
    FAILED,
    DeadLetters,
    now_ms,
    report_search,
    run_command,
)
from pairbus.cli.backlog_options import BacklogOptions
from pairbus.cli.backlog_screen import print_messages
from pairbus.cli.console import consoles, print_error, print_json
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import MessagesAsJson, PeekCount, Timeout
from pairbus.errors import ConfigurationError, EntityNotFound

EXAMPLE = (
    "Example: PAIRBUS_SECONDARY=… pairbus backlog peek --primary-name orders --queue 0 "
    "--dead-letters"
)


@with_option_groups
def peek(
    *,
    options: BacklogOptions,
    queue: Annotated[
        str | None,
        typer.Option(
            help="Show one backlog queue, given by its index or its path.",
            show_default="all queues",
        ),
    ] = None,
    dead_letters: DeadLetters = False,
    count: PeekCount = 10,
    from_sequence: Annotated[
        int | None,
        typer.Option("--from", min=1, help="Sequence number to start from; needs --queue."),
    ] = None,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: MessagesAsJson = False,
) -> None:
    """Show messages of the backlog without receiving them. Needs the Listen right.

    Without --queue, messages of all backlog queues that exist are shown, also those beyond
    --backlog-queues. This costs one operation for each message, and one for every 100 queues of the
    secondary. Without the Manage right, indexes beyond --backlog-queues are tried until 10 in a row
    have no queue.

    Exit status: 0 done; 1 failed: the secondary is not available, or the backlog queue does not
    exist; 2 invalid option.
    """
    out, err = consoles()

    def run(target: InspectionTarget) -> int:
        if queue is not None and not queue.strip("/ "):
            raise ConfigurationError("--queue is empty. Use an index, such as 0, or a path.")
        if queue is None and from_sequence is not None:
            raise ConfigurationError(
                "--from needs --queue, because every queue has its own sequence numbers."
            )
        if queue is None:
            search = list_backlog_queues(target).search()
            messages = _peek_all(target, search, count, dead_letters=dead_letters)
            if not report_search(err, search):
                return FAILED
        else:
            path = target.queue_path(queue)
            try:
                messages = _peek_one(
                    target, path, from_sequence or 1, count, dead_letters=dead_letters
                )
            except EntityNotFound:
                print_error(err, f"The queue {path} does not exist.")
                return FAILED
        time_ms = now_ms()
        if as_json:
            print_json([message.to_json(time_ms) for message in messages])
        else:
            print_messages(out, messages, time_ms, dead_letters=dead_letters)
        return DONE

    needs_name = queue is None or is_index(queue)
    run_command(
        err,
        lambda: options.settings(network).target(timeout, needs_name=needs_name),
        run,
    )


def _peek_one(
    target: InspectionTarget, path: str, from_sequence: int, count: int, *, dead_letters: bool
) -> list[BacklogMessage]:
    with connected(target.secondary) as client:
        batches = peek_queue(
            client, path, dead_letters=dead_letters, from_sequence=from_sequence, count=count
        )
        return [message for batch in batches for message in batch]


def _peek_all(
    target: InspectionTarget, search: QueueSearch, count: int, *, dead_letters: bool
) -> list[BacklogMessage]:
    with connected(target.secondary) as client:
        batches = peek_queues(client, search, dead_letters=dead_letters, count=count)
        return [message for batch in batches for message in batch]
