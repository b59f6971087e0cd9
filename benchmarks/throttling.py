"""A drain beside live traffic, in two namespaces of the Standard tier (1 000 credits a second).

Each namespace runs in a separate process, and so do a live sender and a live receiver for each. The
live clients run alone first, and then beside the drain of a backlog. A live call that the namespace
throttles is counted and not repeated. The drain uses one credit of each namespace for a message, so
its share is the number of moved messages, divided by the credits that live calls have left in the
same time. The time to go is compared with the time that it took, from the tenth second on.
"""

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.live_clients import Calls, LiveClients
from benchmarks.syphon_process import SyphonProcess
from pairbus.amqp.client import Client, ClientOptions, Sender
from pairbus.amqp.sections import Message
from pairbus.emulator import EmulatorProcess
from pairbus.servicebus.backlog_paths import backlog_paths
from pairbus.servicebus.limits import CREDITS_PER_SECOND_STANDARD
from pairbus.syphon.counts import backlog_size
from pairbus.syphon.progress import DrainProgress
from pairbus.transfer import to_backlog

NAME, QUEUES = "bench", 4
WARM_UP, WARM_UP_MESSAGES = "warm-up", 40
"""A backlog that is drained first, so that Spark has started its workers."""
DESTINATIONS = ("orders", "invoices", "events", "mail")
LIVE = "live"
MESSAGES = int(os.environ.get("BENCH_THROTTLING_MESSAGES", "40000"))
LIVE_RATE = float(os.environ.get("BENCH_THROTTLING_LIVE", "150"))
"""Sends a second, and receives a second, on each namespace."""
ALONE_S = 20.0
SAMPLE_S = 0.5
DEADLINE_S = 900.0
BEFORE_S = 3.0
"""Messages are received some time before the first one is moved."""
BATCH = 200
CURVES = Path("benchmarks/throttling.json")
"""The data of the plot in docs/how-to/operations.md; see scripts/throttling_plot.py."""

PERCENT = Unit("% of live calls throttled", digits=2)
SHARE = Unit("% of the credits left", more_is_better=True, digits=0)
DEVIATION = Unit("% deviation of the time to go", digits=0)


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the drain at one moment."""

    time: float
    moved: int
    seconds_to_go: float | None


def fill(connection_string: str) -> None:
    """Send messages to the backlog queues, and to that of the warm-up."""
    payload = Message.build(data=b"x" * 200).encode()
    batch = [to_backlog(payload, path) for path in DESTINATIONS] * (BATCH // len(DESTINATIONS))
    with Client(ClientOptions.from_connection_string(connection_string)) as client:
        for queue in backlog_paths(NAME, QUEUES):
            with Sender(client, queue) as sender:
                for start in range(0, MESSAGES // QUEUES, BATCH):
                    sender.send_batch(batch[: MESSAGES // QUEUES - start])
        with Sender(client, *backlog_paths(WARM_UP, 1)) as sender:
            sender.send_batch(batch[:WARM_UP_MESSAGES])


def run(folder: Path) -> tuple[list[Sample], dict[str, Calls], float]:
    """Run live clients alone and then beside a drain. Return the samples of the drain, the live
    calls by namespace, and the time when the drain was started."""
    queues = backlog_paths(NAME, QUEUES)
    secondary_queues = (*queues, *backlog_paths(WARM_UP, 1), LIVE)
    with EmulatorProcess(NAME, folder=folder / "s", queues=secondary_queues) as secondary:
        fill(secondary.connection_string)
    with (
        EmulatorProcess(NAME, queues=(*DESTINATIONS, LIVE), tier="standard") as primary,
        EmulatorProcess(NAME, folder=folder / "s", tier="standard") as secondary,
        SyphonProcess() as syphon,
    ):
        options = ClientOptions.from_connection_string(secondary.connection_string)
        total = backlog_size(options, queues)
        assert total == MESSAGES // QUEUES * QUEUES, total
        namespaces = {
            "primary": primary.connection_string,
            "secondary": secondary.connection_string,
        }
        syphon.start(**namespaces, primary_name=WARM_UP, backlog_queue_count=1)
        watch(syphon, WARM_UP_MESSAGES)
        syphon.stop()
        with (
            LiveClients(primary.connection_string, LIVE, LIVE_RATE) as on_primary,
            LiveClients(secondary.connection_string, LIVE, LIVE_RATE) as on_secondary,
        ):
            time.sleep(ALONE_S)
            started = time.time()
            syphon.start(**namespaces, primary_name=NAME, backlog_queue_count=QUEUES)
            samples = watch(syphon, total)
            syphon.stop()
        assert not backlog_size(options, queues)
    return samples, {"primary": on_primary.calls, "secondary": on_secondary.calls}, started


def watch(syphon: SyphonProcess, total: int) -> list[Sample]:
    """Sample the drain until all messages were moved."""
    samples: list[Sample] = []
    progress = DrainProgress()
    progress.add_count(time.time(), 0, total)
    deadline = time.monotonic() + DEADLINE_S
    while not samples or samples[-1].moved < total:
        assert time.monotonic() < deadline, f"only {samples[-1].moved} of {total} were moved"
        status, now = syphon.status(), time.time()
        assert status["running"], status["failure"]
        progress.add(now, status["moved"])
        samples.append(Sample(now, status["moved"], progress.seconds_to_go))
        time.sleep(SAMPLE_S)
    return samples


def throttled_share(calls: Calls, start: float, end: float) -> float:
    """Return the percentage of the calls of an interval that were throttled."""
    within = [value for second, value in calls.items() if start <= second < end]
    return 100 * sum(n for _, n in within) / max(1, sum(n for n, _ in within))


def used_share(samples: list[Sample], calls: Calls, start: float, end: float) -> float:
    """Return the percentage of the credits that the drain used of those that were left."""
    live = sum(n - throttled for second, (n, throttled) in calls.items() if start <= second < end)
    moved = samples[-1].moved - next(s.moved for s in samples if s.time >= start)
    return 100 * moved / (CREDITS_PER_SECOND_STANDARD * (end - start) - live)


def deviation(samples: list[Sample], start: float, end: float) -> float:
    """Return the mean deviation of the time to go, in percent of the time that was really left,
    from the tenth second on and as long as at least ten seconds were left."""
    errors = [
        abs(sample.seconds_to_go - (end - sample.time)) / (end - sample.time)
        for sample in samples
        if sample.seconds_to_go is not None and start + 10 <= sample.time <= end - 10
    ]
    return 100 * sum(errors) / len(errors) if errors else float("nan")


def figures(rounds: int) -> list[Figure]:
    """Run once, whatever the number of rounds: the figures are shares, not the fastest time."""
    with tempfile.TemporaryDirectory() as folder:
        samples, calls, started = run(Path(folder))
    start = next(sample.time for sample in samples if sample.moved > 0)
    end = samples[-1].time
    CURVES.write_text(
        json.dumps(
            {
                "drain": [[round(s.time - started, 2), s.moved, s.seconds_to_go] for s in samples],
                "live": {
                    name: [[second - started, *value] for second, value in by_second.items()]
                    for name, by_second in calls.items()
                },
                "credits": CREDITS_PER_SECOND_STANDARD,
            }
        )
        + "\n"
    )
    remark = (
        f"{MESSAGES:,} messages in {end - start:.0f} s, beside {2 * LIVE_RATE:,.0f} live calls/s"
    )
    result = []
    for name, by_second in calls.items():
        alone = throttled_share(by_second, started - ALONE_S + 2, started)
        beside = throttled_share(by_second, start - BEFORE_S, end)
        result += [
            Figure(f"{name}, live calls without the drain", {OURS: alone}, PERCENT),
            Figure(
                f"{name}, live calls beside the drain",
                {OURS: beside},
                PERCENT,
                alone + 1,
                remark=remark,
                aim_is_value=True,
            ),
            Figure(
                f"{name}, credits used by the drain",
                {OURS: used_share(samples, by_second, start, end)},
                SHARE,
                80,
                aim_is_value=True,
            ),
        ]
    result.append(
        Figure(
            "time to go", {OURS: deviation(samples, start, end)}, DEVIATION, 20, aim_is_value=True
        )
    )
    return result
