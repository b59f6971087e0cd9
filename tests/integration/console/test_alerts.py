"""The alert rules with a real Prometheus, which scrapes a real console as in the example."""

import re
import shutil
from pathlib import Path

import pytest

from tests.backlog import Backlog
from tests.console_client import report
from tests.integration.console.sites import Sites
from tests.messages import numbered
from tests.prometheus import PrometheusProcess
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
NO_SERVER = "127.0.0.1:1"
UNKNOWN = "PairbusBacklogUnknown"

pytestmark = pytest.mark.rule("O1")


def example(folder: Path, console_port: int) -> str:
    """Copy the rules without their delays, and return the example configuration for a console."""
    rules = (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    (folder / "alerts.yml").write_text(re.sub(r"\bfor: \w+", "for: 0s", rules), encoding="utf-8")
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    text = text.replace("15s", "1s").replace("127.0.0.1:8710", f"127.0.0.1:{console_port}")
    return re.sub(r"(127\.0\.0\.1:9465|web-\d:9464)", NO_SERVER, text)


def test_outage_in_a_real_console_fires_the_alerts(
    sites: Sites, backlog: Backlog, tmp_path: Path
) -> None:
    backlog.put(backlog.path("orders"), numbered(4))
    backlog.put(backlog.path("bills"), numbered(2), queue=1)
    backlog.dead_letter(2, "Broken", "because", queue=1)
    site = sites.start()
    failed = report(state="failover", path="orders", sender="a", primary_name=backlog.name)
    assert site.client("sender").post("/api/reports", failed).status == 200
    (tmp_path / "pairbus-console.token").write_text(site.token("viewer"))
    shutil.copy(tmp_path / "pairbus-console.token", tmp_path / "pairbus-syphon.token")

    with PrometheusProcess(tmp_path, example(tmp_path, site.port)) as prometheus:

        def firing() -> dict[str, dict[str, str]]:
            alerts = prometheus.query('ALERTS{alertstate="firing"}')
            return {labels["alertname"]: labels for labels, _ in alerts}

        def expected_alerts() -> dict[str, dict[str, str]]:
            alerts = firing()
            expected = {"PairbusPathInFailover", "PairbusDeadLetters", "PairbusTargetDown"}
            # Before the first inspection the backlog is not known.
            return alerts if alerts.keys() & (expected | {UNKNOWN}) == expected else {}

        alerts = wait_until(expected_alerts, "the alerts")

    assert alerts["PairbusPathInFailover"]["pairing"] == backlog.name
    assert alerts["PairbusPathInFailover"]["path"] == "orders"
    assert alerts["PairbusDeadLetters"]["reason"] == "Broken"
    assert alerts["PairbusTargetDown"]["instance"] == NO_SERVER
