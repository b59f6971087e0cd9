"""prometheus and promtool, from Debian's package prometheus."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.waiting import DEADLINE_S, wait_until

HOST = "127.0.0.1"
STARTS = 5
"""Attempts to start: another process may take the port first."""

Series = list[tuple[dict[str, str], float]]
"""Labels and values."""


def program(name: str) -> str:
    """Return the path of a program of the package. `scripts/setup` puts it beside Python."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if path is None:
        pytest.fail(f"{name} is missing. Run 'scripts/setup test'.")
    return path


def promtool(*arguments: str, content: bytes = b"") -> None:
    """Run promtool, and fail if it finds a problem."""
    result = subprocess.run(
        [program("promtool"), *arguments],
        input=content,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == 0, (result.stdout + result.stderr).decode()


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def check_metrics(content: bytes) -> None:
    """Fail unless promtool can read metrics, and accepts their names, types and help texts."""
    assert content
    promtool("check", "metrics", content=content)


def scrape_configuration(*, console_port: int, syphon_port: int) -> str:
    """Return the configuration in docs/reference/telemetry.md, with other ports and a short
    interval."""
    page = (
        Path(__file__).resolve().parent.parent / "docs" / "reference" / "telemetry.md"
    ).read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for documented, port in ((8710, console_port), (9465, syphon_port)):
        assert text.count(f"{HOST}:{documented}") == 1
        text = text.replace(f"{HOST}:{documented}", f"{HOST}:{port}")
    return f"global: {{scrape_interval: 2s}}\n{text}"


class PrometheusProcess:
    """A Prometheus server with a configuration. Paths in it are relative to its folder."""

    def __init__(self, folder: Path, configuration: str) -> None:
        self._folder = folder
        file = folder / "prometheus.yml"
        file.write_text(configuration, encoding="utf-8")
        promtool("check", "config", str(file))
        for _ in range(STARTS):
            self.port = _free_port()
            self._process = self._start(file)
            if wait_until(self._has_started_or_ended, "the start of Prometheus") == "started":
                return
        raise AssertionError(self._log.read_text())

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def query(self, expression: str) -> Series:
        """Return the current values of an expression."""
        result = self._get("query", query=expression)["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def value(self, expression: str) -> float | None:
        """Return the current value of an expression, or None if there is none."""
        series = self.query(expression)
        assert len(series) <= 1, series
        return series[0][1] if series else None

    def metadata(self, metric: str) -> dict[str, str]:
        """Return the type, help and unit of a metric, from one of the targets that have it."""
        metadata: dict[str, str] = self._get("targets/metadata", metric=metric)[0]
        return metadata

    def errors(self) -> dict[str, str]:
        """Return the last error of each job; empty if there was none."""
        targets = self._get("targets")["activeTargets"]
        return {target["labels"]["job"]: target["lastError"] for target in targets}

    def _get(self, path: str, **query: str) -> Any:
        status, content = self._request(f"/api/v1/{path}?{urlencode(query)}")
        assert status == 200, content
        return json.loads(content)["data"]

    def _request(self, path: str) -> tuple[int, bytes]:
        with closing(HTTPConnection(HOST, self.port, timeout=DEADLINE_S)) as client:
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read()

    @property
    def _log(self) -> Path:
        return self._folder / "prometheus.log"

    def _start(self, file: Path) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    program("prometheus"),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self._folder / 'prometheus-data'}",
                    f"--web.listen-address={HOST}:{self.port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    def _has_started_or_ended(self) -> str | None:
        if self._process.poll() is not None:
            return "ended"
        try:
            return "started" if self._request("/-/ready")[0] == 200 else None
        except OSError:
            return None

    def __enter__(self) -> "PrometheusProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
