"""The CPU time that telemetry adds to a healthy paired sender.

The application has no provider of OpenTelemetry ("nothing configured"), or the SDK with its
exporters in memory, for metrics and spans. Two identical processes differ by more than telemetry
adds, so its code is measured directly, within the sends: each round measures the time of the sends
and the part that telemetry takes, so that a machine whose speed changes does not change the ratio.
The lines "in turns" show the total CPU time of sender processes that run in turns and are restarted
several times. All figures are medians of many short rounds.

Most of what telemetry adds to a single send is one call of the application's SDK, which records the
duration in a histogram. That call alone is measured, too, in a loop and with the same attributes.

If valgrind is installed, the instructions of a send are counted, too. Their number hardly depends
on the machine. It does not contain the work of the kernel, so the ratio is lower than that of the
CPU times.
"""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from statistics import median
from timeit import repeat
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.harness import OURS, Figure, Unit
from benchmarks.instructions import INSTRUCTIONS, can_count, instructions_per_send
from benchmarks.pairing import FAST, NamespaceAddress, namespace, paired
from benchmarks.sender_cost import (
    BATCH,
    CPU_TIME,
    SPAWN,
    Send,
    Stopwatch,
    measure_in_turns,
    medians,
    send_batches,
    send_singles,
    sender_process,
)
from pairbus.pairing.sender_links import SenderLinks
from pairbus.telemetry.metrics import DURATION_BUCKETS, OPERATION_DURATION
from pairbus.telemetry.senders import SEND, ServerAddress, send_attributes

WITHOUT = "telemetry=False"
UNCONFIGURED, EXPORTERS = "nothing configured", "exporters in memory"
AIMS = {UNCONFIGURED: 0.999, EXPORTERS: 0.97}
RESTARTS = 4
CALLS = 100_000
RECORDS = 20_000
ADDED = Unit("CPU µs added to a single send")
RECORD = "histogram.record() alone"
OFF = {"telemetry": False}


def figures() -> list[Figure]:
    with ExitStack() as stack:
        primary, secondary = (
            NamespaceAddress(stack.enter_context(namespace()).connection_string) for _ in range(2)
        )
        result = []
        if can_count():
            result += _count_instructions(primary, secondary)
        check = _measure_check(primary, secondary)
        # A process of its own: the providers are set once, and would be there for later benchmarks.
        process = stack.enter_context(
            ProcessPoolExecutor(1, mp_context=SPAWN, initializer=set_providers)
        )
        sends = {"single sends": (send_singles, 1, 20), "batched sends": (send_batches, 16, 5)}
        for name, (send, repeats, rounds) in sends.items():
            measured = process.submit(_measure_code, primary, secondary, send, repeats, rounds)
            plain, ratio = measured.result()
            messages_per_call = 1 if send is send_singles else BATCH
            for contender, added in (
                (UNCONFIGURED, check / messages_per_call),
                (EXPORTERS, plain * ratio),
            ):
                values = {OURS: plain + added, WITHOUT: plain}
                result.append(Figure(f"{name}, {contender}", values, CPU_TIME, AIMS[contender]))
            if send is send_singles:
                values = {OURS: plain * ratio, RECORD: process.submit(_measure_record).result()}
                result.append(Figure(f"{name}, {EXPORTERS}", values, ADDED))
        for name, (send, _, _) in sends.items():
            result += _measure_in_turns(primary, secondary, name, send)
    return result


def set_providers() -> None:
    """Set the providers of the application."""
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    metrics.set_meter_provider(MeterProvider(metric_readers=[InMemoryMetricReader()]))
    trace.set_tracer_provider(tracers)


def _count_instructions(primary: NamespaceAddress, secondary: NamespaceAddress) -> list[Figure]:
    without = instructions_per_send(primary, secondary, OFF)
    result = []
    for contender in AIMS:
        counted = instructions_per_send(primary, secondary, {}, providers=contender == EXPORTERS)
        values = {OURS: counted, WITHOUT: without}
        result.append(Figure(f"single sends, {contender}", values, INSTRUCTIONS))
    return result


def _measure_in_turns(
    primary: NamespaceAddress, secondary: NamespaceAddress, name: str, send: Send
) -> list[Figure]:
    contenders: tuple[tuple[str, dict[str, Any], Callable[[], None] | None], ...] = (
        (UNCONFIGURED, {}, None),
        (EXPORTERS, {}, set_providers),
        (WITHOUT, OFF, None),
    )
    times: dict[str, list[float]] = {contender: [] for contender, _, _ in contenders}
    for _ in range(RESTARTS):
        with ExitStack() as stack:
            processes = [
                (
                    contender,
                    stack.enter_context(sender_process(primary, secondary, options, prepare)),
                )
                for contender, options, prepare in contenders
            ]
            measure_in_turns(processes, send, times)
    values = medians(times)
    return [
        Figure(
            f"{name}, {contender}, in turns",
            {OURS: values[contender], WITHOUT: values[WITHOUT]},
            CPU_TIME,
        )
        for contender in AIMS
    ]


def _measure_check(primary: NamespaceAddress, secondary: NamespaceAddress) -> float:
    """Return the time of what a call does for telemetry that is off, in µs: it finds that there is
    none, at its begin and at its end."""
    with (
        paired(primary, secondary, OFF, **FAST) as client,
        client.get_queue_sender("orders") as sender,
    ):
        links = sender._links
        began, plain, checked = (
            min(repeat(function, number=CALLS))
            for function in (
                links.begin_primary_call,
                links.primary_sender,
                lambda: links._telemetry is not None,
            )
        )
    return (began - plain + checked) / CALLS * 1e6


def _measure_record() -> float:
    """Return the time in which the SDK records a duration, in µs."""
    histogram = metrics.get_meter("benchmark").create_histogram(
        OPERATION_DURATION, unit="s", explicit_bucket_boundaries_advisory=DURATION_BUCKETS
    )
    attributes = send_attributes(SEND, "orders", ServerAddress("localhost", 5672))
    times = repeat(lambda: histogram.record(0.001, attributes), time.process_time, number=RECORDS)
    return min(times) / RECORDS * 1e6


def _measure_code(
    primary: NamespaceAddress, secondary: NamespaceAddress, send: Send, repeats: int, rounds: int
) -> tuple[float, float]:
    """Return the time of a message without telemetry, in µs, and the share that telemetry adds.

    A round sends `repeats` times with each of two senders: without telemetry, which measures the
    time of an empty call, and with it. Durations are recorded in groups, and a round has several.
    """
    stopwatch = Stopwatch(time.thread_time_ns)
    plain_us, ratios = [], []
    with ExitStack() as stack:
        for name in ("begin_primary_call", "primary_call_ended"):
            stack.enter_context(stopwatch.around(SenderLinks, name))
        senders = []
        for options in (OFF, {}):
            client = stack.enter_context(paired(primary, secondary, options, **FAST))
            senders.append(stack.enter_context(client.get_queue_sender("orders")))
        without, with_telemetry = senders
        assert without._links._telemetry is None, "telemetry is not off"
        assert with_telemetry._links._telemetry is not None, "telemetry is off"
        for number in range(rounds + 1):
            empty_ns, plain_ns, messages = _measure_round(stopwatch, without, send, repeats)
            code_ns, _, _ = _measure_round(stopwatch, with_telemetry, send, repeats)
            if number > 0:  # The first round opens links.
                plain_us.append(plain_ns / messages / 1e3)
                ratios.append((code_ns - empty_ns) / plain_ns)
    assert min(ratios) > 0, "no call for telemetry was measured"
    return median(plain_us), median(ratios)


def _measure_round(
    stopwatch: Stopwatch, sender: Any, send: Send, repeats: int
) -> tuple[int, int, int]:
    """Return the nanoseconds of the timed functions and of everything, and the messages."""
    stopwatch.ns = 0
    start = time.thread_time_ns()
    messages = sum(send(sender) for _ in range(repeats))
    return stopwatch.ns, time.thread_time_ns() - start, messages
