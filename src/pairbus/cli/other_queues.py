"""Backlog queues that exist beyond --backlog-queues, which a syphon does not drain."""

from typing import TYPE_CHECKING

from rich.console import Console

from pairbus.backlog.discovery import describe_queues
from pairbus.cli.backlog_command import describe_no_queues
from pairbus.cli.console import print_warning
from pairbus.cli.formatting import messages
from pairbus.cli.threads import run_in_thread
from pairbus.servicebus.backlog_paths import backlog_path

if TYPE_CHECKING:
    from pairbus.syphon.options import SyphonOptions


def warn_of_other_queues(err: Console, options: "SyphonOptions") -> tuple[int, ...]:
    """Print a warning if there are other queues, or no queue at all, and they can be listed. Return
    the indexes of the others."""
    from pairbus.syphon.counts import existing_queues

    count, name = options.backlog_queue_count, options.name or ""
    existing = run_in_thread(lambda: existing_queues(options.secondary, name, count, options.usage))
    if existing == ():
        print_warning(err, describe_no_queues(backlog_path(name, 0)))
    indexes = tuple(index for index in existing or () if index >= count)
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
