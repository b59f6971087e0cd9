"""`pairbus backlog destinations`: totals of the backlog by destination."""

from pairbus.backlog.contents import BacklogContents
from pairbus.backlog.destinations import DestinationSummaries
from pairbus.backlog.discovery import QueueSearch, list_backlog_queues
from pairbus.backlog.inspection import inspect_backlog
from pairbus.backlog.peek import connected, peek_queues
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.backlog_command import (
    DONE,
    FAILED,
    STOPPED,
    DeadLetters,
    now_ms,
    report_search,
    run_command,
)
from pairbus.cli.backlog_options import BacklogOptions
from pairbus.cli.backlog_screen import PeekProgress, print_destinations
from pairbus.cli.console import consoles, print_json, print_warning
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import AsJson, Timeout

EXAMPLE = "Example: PAIRBUS_SECONDARY=… pairbus backlog destinations --primary-name orders"


@with_option_groups
def destinations(
    *,
    options: BacklogOptions,
    dead_letters: DeadLetters = False,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """Show totals of the backlog by destination: messages, size, age, and messages without one.

    This peeks at every message of the backlog. Each is billed as one operation, or several above
    64 KB: a million messages are a million operations. It needs the Listen right. All backlog
    queues that exist are read, also those beyond --backlog-queues. Without the Manage right,
    indexes beyond --backlog-queues are tried until 10 in a row have no queue.

    Ctrl-C stops it and shows the totals so far.

    Exit status: 0 done; 1 failed: the secondary is not available, or no backlog queue exists; 2
    invalid option; 4 stopped before the whole backlog was read.
    """
    out, err = consoles()

    def run(target: InspectionTarget) -> int:
        summaries = DestinationSummaries()
        search: QueueSearch | None = None
        stopped = False
        try:
            with PeekProgress(err) as progress:
                listing = list_backlog_queues(target)
                if progress.visible:
                    backlog = inspect_backlog(target, listing, peek_count=1)
                    progress.set_total(_total(backlog, dead_letters=dead_letters))
                search = listing.search()
                with connected(target.secondary) as client:
                    for messages in peek_queues(client, search, dead_letters=dead_letters):
                        summaries.add(messages)
                        progress.update(summaries.messages)
        except KeyboardInterrupt:
            stopped = True
        if search is not None and not report_search(err, search) and not stopped:
            return FAILED
        time_ms = now_ms()
        if as_json:
            print_json(
                {
                    "messages": summaries.messages,
                    "without_destination": summaries.without_destination,
                    "complete": not stopped,
                    "searched_to": None if search is None else search.searched_to,
                    "destinations": [
                        summary.to_json(time_ms) for summary in summaries.largest_first()
                    ],
                }
            )
        else:
            print_destinations(out, summaries, time_ms, dead_letters=dead_letters)
        if stopped:
            print_warning(err, "Stopped before the whole backlog was read.")
        return STOPPED if stopped else DONE

    run_command(
        err,
        lambda: options.settings(network).target(timeout),
        run,
    )


def _total(backlog: BacklogContents, *, dead_letters: bool) -> int | None:
    """Return the number of messages to peek at, or None if it is unknown."""
    if dead_letters:
        return None if backlog.more_dead_lettered else backlog.dead_lettered
    return None if backlog.more_messages else backlog.messages
