"""The CPU time that telemetry adds to a healthy paired sender.

The application has no provider of OpenTelemetry ("nothing configured"), or the SDK with its
exporters in memory, for metrics and spans. As in the benchmark of the ledger, the code of telemetry
is measured directly, and the sum is added to the CPU time of the same sends without telemetry. The
lines "in turns" show the total CPU time of sender processes that run in turns and are restarted
several times. All figures are medians of many short rounds.
"""

import time
from contextlib import ExitStack
from statistics import median
from timeit import repeat

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.harness import OURS, Figure
from benchmarks.pairing import FAST, NamespaceAddress, namespace, paired
from benchmarks.sender_cost import (
    CPU_TIME,
    Stopwatch,
    measure_in_turns,
    medians,
    send_batches,
    send_singles,
    sender_process,
)
from pairbus.pairing.sender_base import SenderLinks

WITHOUT = "telemetry=False"
UNCONFIGURED, EXPORTERS = "nothing configured", "exporters in memory"
AIMS = {UNCONFIGURED: 0.999, EXPORTERS: 0.97}
RESTARTS = 4
CALLS = 100_000


def figures() -> list[Figure]:
    with ExitStack() as stack:
        primary, secondary = (stack.enter_context(namespace()) for _ in range(2))
        single, batched = (
            {contender: [] for contender in (UNCONFIGURED, EXPORTERS, WITHOUT)} for _ in range(2)
        )
        _measure_processes(primary, secondary, single, batched)
        unconfigured = _measure_checks(primary, secondary)
        added = {
            "single sends": {UNCONFIGURED: unconfigured},
            "batched sends": {UNCONFIGURED: unconfigured / 100},
        }
        added["single sends"][EXPORTERS], added["batched sends"][EXPORTERS] = _measure_code(
            primary, secondary
        )
    result = []
    for name, times in (("single sends", single), ("batched sends", batched)):
        values = medians(times)
        plain = values[WITHOUT]
        for contender, aim in AIMS.items():
            with_added = {OURS: plain + added[name][contender], WITHOUT: plain}
            result.append(Figure(f"{name}, {contender}", with_added, CPU_TIME, aim))
            in_turns = {OURS: values[contender], WITHOUT: plain}
            result.append(Figure(f"{name}, {contender}, in turns", in_turns, CPU_TIME))
    return result


def set_providers() -> None:
    """Set the providers of the application."""
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    metrics.set_meter_provider(MeterProvider(metric_readers=[InMemoryMetricReader()]))
    trace.set_tracer_provider(tracers)


def _measure_processes(
    primary: NamespaceAddress,
    secondary: NamespaceAddress,
    single: dict[str, list[float]],
    batched: dict[str, list[float]],
) -> None:
    contenders = (
        (UNCONFIGURED, {}, None),
        (EXPORTERS, {}, set_providers),
        (WITHOUT, {"telemetry": False}, None),
    )
    for _ in range(RESTARTS):
        with ExitStack() as stack:
            processes = [
                (name, stack.enter_context(sender_process(primary, secondary, options, prepare)))
                for name, options, prepare in contenders
            ]
            measure_in_turns(processes, send_singles, single)
            measure_in_turns(processes, send_batches, batched)


def _measure_checks(primary: NamespaceAddress, secondary: NamespaceAddress) -> float:
    """Return the time of what a send does for telemetry that is off, in µs: it finds that there is
    none, at its begin and at its end."""
    with (
        paired(primary, secondary, {"telemetry": False}, **FAST) as client,
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


def _measure_code(primary: NamespaceAddress, secondary: NamespaceAddress) -> list[float]:
    """Return the time for telemetry in single and in batched sends, in µs per message."""
    stopwatch = Stopwatch(time.thread_time_ns)
    results = []
    with ExitStack() as stack:
        for name in ("begin_primary_call", "primary_call_ended"):
            stack.enter_context(stopwatch.around(SenderLinks, name))
        off = {"telemetry": False}
        plain = stack.enter_context(paired(primary, secondary, off, **FAST))
        sender = stack.enter_context(plain.get_queue_sender("orders"))
        empty_ns = median(ns / calls for ns, calls, _ in stopwatch.rounds(sender, send_singles))
        assert not sender._links._telemetry, "telemetry is not off"
        set_providers()
        client = stack.enter_context(paired(primary, secondary, {}, **FAST))
        sender = stack.enter_context(client.get_queue_sender("orders"))
        for send in (send_singles, send_batches):
            # Not a median: durations are recorded in groups, which only some of the rounds do.
            ns, calls, messages = map(sum, zip(*stopwatch.rounds(sender, send), strict=True))
            added_ns = (ns - calls * empty_ns) / messages
            assert added_ns > 0, "no call for telemetry was measured"
            results.append(added_ns / 1e3)
    return results
