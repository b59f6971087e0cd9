"""Backlog queues that exist beyond --backlog-queues, which a syphon does not drain."""

from typing import TYPE_CHECKING

from rich.console import Console

from pairbus.backlog.discovery import describe_queues
from pairbus.cli.console import print_warning
from pairbus.cli.formatting import messages
from pairbus.cli.threads import run_in_thread
from pairbus.servicebus.backlog_paths import backlog_path

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions


def warn_of_other_queues(err: Console, options: "SyphonOptions") -> tuple[int, ...]:
    """Print a warning if there are other queues and they can be listed. Return their indexes."""
    from pairbus.syphon.counts import unread_queues

    count = options.backlog_queue_count
    indexes = run_in_thread(
        lambda: unread_queues(options.secondary, options.name or "", count, options.usage)
    )
    if indexes:
        names, single = describe_queues(indexes), len(indexes) == 1
        print_warning(
            err,
            f"{names[0].upper()}{names[1:]} {'exists' if single else 'exist'}, but "
            f"{'is' if single else 'are'} not drained, because --backlog-queues is {count}. Stop "
            f"the syphon and start it with --backlog-queues {max(indexes) + 1}.",
        )
    return indexes


def other_queues_problem(options: "SyphonOptions", indexes: tuple[int, ...]) -> str | None:
    """Return the reason why a backlog is not drained although the syphon has drained its queues, or
    None if the other queues are empty. Each of them costs a management operation."""
    if not indexes:
        return None
    from pairbus.syphon.counts import backlog_size

    paths = tuple(backlog_path(options.name or "", index) for index in indexes)
    count = run_in_thread(lambda: backlog_size(options.secondary, paths, options.usage))
    if count == 0:
        return None
    waiting = "an unknown number of messages" if count is None else messages(f"{count:,}")
    verb = "waits" if count == 1 else "wait"
    return (
        f"{waiting} {verb} in {describe_queues(indexes)}, beyond --backlog-queues "
        f"{options.backlog_queue_count}; use --backlog-queues {max(indexes) + 1}"
    )
