"""`python -m tests.scale [--processes 1000]`: simulate the outages of docs/explanation/scale.md."""

import argparse
import json
import logging
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.scale.outage import OutagePlan, OutageResult, highest_rate, simulate

FILE = Path(__file__).resolve().parents[2] / "benchmarks/scale.json"
STEP_S = 10
"""The time between two points of a plot."""
PROCESSES = (10, 100, 1000, 10_000)
RECOMMENDED: dict[int, dict[str, Any]] = {
    10: {},
    100: {},
    1000: {"queues": 2, "ping_jitter": 0.5, "drain_check_interval": 120},
    10_000: {"queues": 2, "ping_jitter": 0.5, "drain_check_interval": 600},
}
"""Settings by number of processes, with intervals in seconds. Others have their defaults."""


def make_plan(processes: int, failback: str, settings: dict[str, Any]) -> OutagePlan:
    """Return the plan of an outage with these settings."""
    options = {name: value for name, value in settings.items() if name != "queues"}
    if "drain_check_interval" in options:
        options["drain_check_interval"] = timedelta(seconds=options["drain_check_interval"])
    return OutagePlan(
        processes=processes,
        queues=settings.get("queues", 10),
        limit_s=3600.0,
        options={"failback": failback, **options},
    )


def summarize(result: OutageResult) -> dict[str, Any]:
    """Return the figures of a result, and its course in steps."""
    after = {
        purpose: sum(n for second, n in counts.items() if second >= result.up_at)
        for purpose, counts in result.throttled_primary.items()
    }
    return {
        "in_failover": result.in_failover,
        "pings_per_second": highest_rate(result.primary.get("pings", {})),
        "peeks_per_second": highest_rate(result.secondary.get("peeks", {})),
        "peeks": sum(result.secondary.get("peeks", {}).values()),
        "last_failback_s": result.last_failback_s,
        "median_failback_s": _median(result.failed_back_at, result.up_at),
        "drained_s": None if result.drained_at is None else result.drained_at - result.up_at,
        "throttled_live_primary": after.get("live", 0),
        "throttled_live_secondary": sum(result.throttled_secondary.get("live", {}).values()),
        "throttled_pings": after.get("pings", 0),
        "live_sends": sum(result.primary["live"].values()) + sum(result.secondary["live"].values()),
        "failed_down": result.failed_calls["down"],
        "failed_busy": result.failed_calls["busy"],
        "longest_hold_s": result.longest_hold_s,
        "primary": _steps(result, result.primary),
        "secondary": _steps(result, result.secondary),
        "failed_back": _steps(
            result, {"paths": dict(Counter(int(at) for at in result.failed_back_at))}
        )["paths"],
    }


def _median(times: tuple[float, ...], since: float) -> float | None:
    return times[len(times) // 2] - since if times else None


def _steps(result: OutageResult, counts: dict[str, dict[int, int]]) -> dict[str, list[float]]:
    """Return the mean per second of each step, from the end of the outage on."""
    steps = int(result.ended_at - result.up_at) // STEP_S + 1
    series = {}
    for purpose, by_second in counts.items():
        sums = [0.0] * steps
        for second, count in by_second.items():
            if result.up_at <= second < result.up_at + steps * STEP_S:
                sums[int(second - result.up_at) // STEP_S] += count / STEP_S
        series[purpose] = [round(value, 1) for value in sums]
    return series


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="*", default=PROCESSES)
    chosen = parser.parse_args().processes
    logging.getLogger("pairbus").setLevel(logging.CRITICAL)
    data: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"runs": []}
    runs = {(run["processes"], run["failback"]): run for run in data["runs"]}
    for processes in chosen:
        for failback in ("immediate", "after-drain"):
            settings = RECOMMENDED[processes]
            result = summarize(simulate(make_plan(processes, failback, settings)))
            runs[processes, failback] = {
                "processes": processes,
                "failback": failback,
                "settings": settings,
                **result,
            }
            figures = {name: v for name, v in result.items() if not isinstance(v, dict | list)}
            print(processes, failback, settings, figures, flush=True)
            data = {"step_s": STEP_S, "runs": [runs[key] for key in sorted(runs)]}
            FILE.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
