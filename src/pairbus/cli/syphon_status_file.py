"""The file that `pairbus status --status-file` and monitoring tools read: its values, for one
pairing or several."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairbus.syphon.progress import DrainProgress
    from pairbus.syphon.status import SyphonStatus

DRAINED, FAILED, USAGE_ERROR, STUCK, STOPPED, DEAD_LETTERED = range(6)
"""The exit status of `pairbus syphon`. The last one: drained, but some messages did not arrive."""
_SUMS = ("rate", "throttled_sends", "throttled_receives")
_BY_DESTINATION = ("moved", "dead_lettered", "dead_letter_reasons", "errors")
_ENDS = ("failed", "stopped", "stuck", "drained")
"""The ends of a syphon, the worst first."""


def describe_end(exit_status: int, *, once: bool) -> str:
    """Return how a syphon with this exit status ended."""
    if exit_status in (DRAINED, DEAD_LETTERED):
        return "drained" if once else "stopped"
    return {STUCK: "stuck", STOPPED: "stopped"}.get(exit_status, "failed")


def removed(status: "SyphonStatus") -> int:
    """Return the number of messages that have left the backlog."""
    return status.moved.total() + status.dead_lettered.total()


def status_values(
    status: "SyphonStatus", progress: "DrainProgress", ended: str | None = None
) -> dict[str, Any]:
    """Return the values of one pairing. `ended` is how its syphon ended: drained, stopped, stuck or
    failed. None: it runs."""
    from pairbus.syphon.progress import seconds_to_go

    rate = progress.rate if status.running else 0.0
    return {
        "running": status.running and ended is None,
        "ended": ended,
        "healthy": status.healthy,
        "paused": status.paused,
        "problem": status.problem,
        "moved": status.moved,
        "dead_lettered": status.dead_lettered,
        "dead_letter_reasons": status.dead_letter_reasons,
        "remaining": progress.remaining,
        "errors": status.errors,
        "throttled_sends": status.throttled_sends,
        "throttled_receives": status.throttled_receives,
        "rate": rate,
        "seconds_to_go": seconds_to_go(progress.remaining, rate, progress.arrivals),
    }


def combined_values(pairings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the totals of several pairings, and the values of each below `pairings`. A number that
    one of them does not know is not known for all. They drain at the same time, so the time to go
    is the longest."""
    values = pairings.values()
    problems = [f"{name}: {each['problem']}" for name, each in pairings.items() if each["problem"]]
    running = any(each["running"] for each in values)
    ends = {each["ended"] for each in values}
    return {
        "running": running,
        "ended": None if running else next((end for end in _ENDS if end in ends), None),
        "healthy": all(each["healthy"] for each in values),
        "paused": all(each["paused"] for each in values),
        "problem": "; ".join(problems) or None,
        **{
            key: {
                f"{name}: {path}": value
                for name, each in pairings.items()
                for path, value in each[key].items()
            }
            for key in _BY_DESTINATION
        },
        "remaining": _if_all_known(sum, (each["remaining"] for each in values)),
        **{key: sum(each[key] for each in values) for key in _SUMS},
        "seconds_to_go": _if_all_known(max, (each["seconds_to_go"] for each in values)),
        "pairings": pairings,
    }


def _if_all_known(combine: Any, numbers: Iterable[float | None]) -> Any:
    known = list(numbers)
    return None if None in known else combine(known)


def write_status_file(path: Path, values: Mapping[str, Any]) -> None:
    """Replace the status file."""
    from pairbus.syphon.status_file import write_json

    write_json(path, {**values, "time": time.time()})
