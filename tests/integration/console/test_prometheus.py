"""The metrics of a console and of a syphon's endpoint, with promtool and a real Prometheus."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.metrics_endpoint import MetricsEndpoint
from pairbus.cli.metrics_options import MetricsOptions
from pairbus.syphon.metrics import measured_samples
from pairbus.syphon.progress import DrainProgress
from pairbus.syphon.status import initial_status
from pairbus.telemetry.metrics import METRICS, MetricKind
from pairbus.telemetry.prometheus import ExpositionFormat, prometheus_name, render_metrics
from pairbus.telemetry.samples import Sample
from tests.backlog import Backlog
from tests.console_client import ConsoleClient, report
from tests.integration.console.sites import Site, Sites
from tests.messages import numbered
from tests.prometheus import PrometheusProcess, check_metrics, port_of, scrape_configuration
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("O1")

HOSTILE = 'a"b\\c\nd\re{}=,#\u202ef\N{SNOWMAN}\0\x01\x7f'
"""A name with characters that mean something in the text format, and others."""


def syphon_samples(moved: int) -> list[Sample]:
    """Return samples of a syphon that drains, with all its metrics."""
    progress = DrainProgress()
    progress.add(0.0, 0)
    progress.add(10.0, moved)
    progress.add_count(10.0, moved, 50)
    status = replace(
        initial_status(),
        moved=Counter({"orders": moved, HOSTILE: 1}),
        dead_letter_reasons={"orders": Counter({HOSTILE: 3})},
    )
    return list(measured_samples(status, progress, "shop"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "pairbus-syphon.token"
    path.write_text("token-of-the-syphon\n")
    return path


@pytest.fixture
def endpoint(token_file: Path) -> Iterator[MetricsEndpoint]:
    opened = MetricsOptions(metrics_port=0, metrics_token_file=token_file).open()
    assert opened is not None
    with opened:
        yield opened


@pytest.fixture
def site(sites: Sites, backlog: Backlog, tmp_path: Path) -> Site:
    """A console that knows a value for every metric but the cost."""
    backlog.put(backlog.path("orders"), numbered(4))
    backlog.put(backlog.path("bills"), numbered(2), queue=1)
    backlog.dead_letter(2, "Broken", "because", queue=1)
    status: dict[str, Any] = {
        "running": True, "ended": None, "healthy": True, "paused": False, "problem": None,
        "moved": {}, "dead_lettered": {}, "dead_letter_reasons": {}, "remaining": None,
        "errors": {}, "rate": 12.5, "seconds_to_go": 8.0, "time": 4_000_000_000.0,
    }  # fmt: skip
    (tmp_path / "status.json").write_text(json.dumps(status))
    site = sites.start()
    for number, path in enumerate((HOSTILE, "orders")):
        answer = site.client("sender").post(
            "/api/reports",
            report(state="failover", path=path, sender=f"s-{number}", primary_name=backlog.name),
        )
        assert answer.status == 200, answer.body
    return site


def console_metrics(site: Site) -> bytes:
    """Return the metrics after the first inspection."""
    viewer: ConsoleClient = site.client("viewer")

    def content() -> bytes | None:
        body = viewer.get("/metrics").body
        return body if b"\npairbus_backlog_dead_letters{" in body else None

    return wait_until(content, "the first inspection")


def test_promtool_accepts_the_metrics_of_the_console(site: Site) -> None:
    content = console_metrics(site)

    check_metrics(content)
    names = {line.split()[2] for line in content.decode().splitlines() if line.startswith("# TYPE")}
    expected = {
        name
        for name, metric in METRICS.items()
        if metric.recorded_by == "console" and name != "pairbus.outage.cost"
    }
    assert names >= {prometheus_name(METRICS[name]) for name in expected}


def test_promtool_accepts_every_metric() -> None:
    samples = [
        Sample(name, 1.5, dict.fromkeys(metric.attributes, HOSTILE))
        for name, metric in METRICS.items()
        if metric.kind is not MetricKind.HISTOGRAM
    ]

    check_metrics(render_metrics(samples))


def test_promtool_finds_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match="should have"):
        check_metrics(b"# TYPE some_messages counter\nsome_messages 1.0\n")


def test_openmetrics_is_chosen_by_the_client(site: Site) -> None:
    answer = site.client("viewer").get("/metrics", Accept="application/openmetrics-text")

    assert answer.headers["content-type"] == ExpositionFormat.OPENMETRICS.value
    assert answer.body.endswith(b"\n# EOF\n")


def test_prometheus_scrapes_the_console_and_the_syphon_as_documented(
    site: Site, endpoint: MetricsEndpoint, backlog: Backlog, tmp_path: Path
) -> None:
    console_metrics(site)
    (tmp_path / "pairbus-console.token").write_text(site.token("viewer"))
    configuration = scrape_configuration(console_port=site.port, syphon_port=port_of(endpoint.url))

    with PrometheusProcess(tmp_path, configuration) as prometheus:

        def has_value(expression: str, value: float) -> bool:
            endpoint.publish(syphon_samples(moved))  # as a syphon does
            return prometheus.value(expression) == value

        def wait_for_value(expression: str, value: float) -> None:
            wait_until(partial(has_value, expression, value), f"{expression} to be {value}")

        moved = 100
        for job in ("pairbus-console", "pairbus-syphon"):
            wait_for_value(f'up{{job="{job}"}}', 1)
        name = f'pairing="{backlog.name}"'
        orders = f'{name},destination="{backlog.name}-orders"'
        wait_for_value(f"pairbus_backlog_messages{{{orders}}}", 4)
        wait_for_value(f'pairbus_backlog_dead_letters{{{name},reason="Broken"}}', 2)
        wait_for_value(f"sum(pairbus_console_senders{{{name}}})", 2)
        wait_for_value(f"pairbus_drain_time_to_go_seconds{{{name}}}", 8)
        wait_for_value('pairbus_drain_rate_per_second{pairing="shop"}', 10)
        wait_for_value('pairbus_drained_messages_total{destination="orders"}', 100)
        moved = 120
        wait_for_value('pairbus_drained_messages_total{destination="orders"}', 120)

        paths = wait_until(
            lambda: prometheus.query('pairbus_path_state{state="failover"} == 1'), "the paths"
        )
        assert {labels["path"] for labels, _ in paths} == {HOSTILE, "orders"}
        wait_for_value("pairbus_dead_letters_total", 3)
        reasons = wait_until(lambda: prometheus.query("pairbus_dead_letters_total"), "the reason")
        assert [labels["reason"] for labels, _ in reasons] == [HOSTILE]
        # Only OpenMetrics has units, so that is what Prometheus has asked for.
        rate = prometheus.metadata("pairbus_drain_rate_per_second")
        assert (rate["type"], rate["unit"]) == ("gauge", "per_second")


@pytest.mark.rule("O3")
def test_prometheus_without_the_token_gets_nothing(
    site: Site, endpoint: MetricsEndpoint, tmp_path: Path
) -> None:
    for name in ("console", "syphon"):
        (tmp_path / f"pairbus-{name}.token").write_text("wrong")
    configuration = scrape_configuration(console_port=site.port, syphon_port=port_of(endpoint.url))

    with PrometheusProcess(tmp_path, configuration) as prometheus:
        refused = "server returned HTTP status 401 Unauthorized"
        wait_until(
            lambda: set(prometheus.errors().values()) == {refused}, "both scrapes to be refused"
        )
        assert prometheus.query('{__name__=~"pairbus_.*"}') == []
