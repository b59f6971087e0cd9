"""`pairbus backlog list`: the backlog queues."""

from rich.console import Console

from pairbus.backlog.contents import BacklogContents
from pairbus.backlog.discovery import list_backlog_queues
from pairbus.backlog.inspection import inspect_backlog
from pairbus.backlog.target import InspectionTarget
from pairbus.cli.backlog_command import (
    DONE,
    FAILED,
    now_ms,
    report_no_queues,
    run_command,
    warn_of_queues,
)
from pairbus.cli.backlog_options import BacklogOptions
from pairbus.cli.backlog_screen import print_queues
from pairbus.cli.console import consoles, print_error, print_json, print_warning, with_advice
from pairbus.cli.network_options import NetworkOptions
from pairbus.cli.option_groups import with_option_groups
from pairbus.cli.pairing_options import AsJson, Timeout

EXAMPLE = "Example: PAIRBUS_SECONDARY=… pairbus backlog list --primary-name orders"
PEEK_COUNT = 100
"""The number of messages of each queue that are peeked if the namespace returns no counts."""


@with_option_groups
def list_queues(
    *,
    options: BacklogOptions,
    timeout: Timeout = 30,
    network: NetworkOptions,
    as_json: AsJson = False,
) -> None:
    """List the backlog queues with their messages, dead letters, size and age.

    All backlog queues that exist are shown, also those beyond --backlog-queues. This costs one
    operation for each backlog queue, one more for each queue that is not empty, and one for every
    100 queues of the secondary. It needs the Manage right. With the Listen right alone, up to 100
    messages of each queue are peeked, which costs one operation for each message, and indexes
    beyond --backlog-queues are tried until 10 in a row have no queue.

    Exit status: 0 done; 1 failed: the secondary is not available, or no backlog queue exists; 2
    invalid option.
    """
    out, err = consoles()

    def run(target: InspectionTarget) -> int:
        backlog = inspect_backlog(target, list_backlog_queues(target), peek_count=PEEK_COUNT)
        time_ms = now_ms()
        if as_json:
            print_json(backlog.to_json(time_ms))
        elif backlog.found and backlog.messages is not None:
            print_queues(out, backlog, time_ms)
        return _report(err, backlog)

    run_command(
        err,
        lambda: options.settings(network).target(timeout),
        run,
    )


def _report(err: Console, backlog: BacklogContents) -> int:
    """Print errors and warnings, and return the exit status."""
    if not backlog.found and backlog.problem is None:
        report_no_queues(err, backlog.queues[0].path, backlog.searched_to)
        return FAILED
    if backlog.messages is not None:
        warn_of_queues(err, backlog.queue_mismatch, backlog.listing_error, backlog.searched_to)
    if backlog.counting_error is not None and backlog.messages is not None:
        print_warning(
            err,
            f"The messages could not be counted: {backlog.counting_error}. Up to {PEEK_COUNT} "
            "messages of each queue were peeked; a + means that there may be more.",
        )
    if backlog.problem is not None:
        advice = "Check the address of the secondary, the key and its rights, and the network."
        print_error(err, f"The backlog could not be read: {with_advice(backlog.problem, advice)}")
        return FAILED
    return DONE
