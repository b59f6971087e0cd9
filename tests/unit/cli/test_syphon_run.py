"""How a run of a syphon ends, with a syphon that does what the test says."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbus.cli.console import consoles
from pairbus.cli.metrics_endpoint import Publish
from pairbus.cli.syphon_pairings import PairingsRun
from pairbus.cli.syphon_run import SyphonRun
from pairbus.cli.syphon_status_file import DEAD_LETTERED, DRAINED, FAILED, STUCK
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.status import SyphonStatus, initial_status
from pairbus.telemetry.metrics import DRAINED_MESSAGES, SYPHON_HEALTHY
from pairbus.telemetry.samples import Sample
from tests.commands import ONE, TWO

OPTIONS = SyphonOptions(primary=ONE, secondary=TWO)  # type: ignore[arg-type]


class FakeSyphon:
    """A syphon without Spark."""

    options = OPTIONS

    def __init__(self) -> None:
        self.start_error: Exception | None = None
        self.status_error: Exception | None = None
        self.without_executors = 0.0
        self.final = initial_status()
        self.is_stopped = False

    def start(self, *, once: bool) -> None:
        if self.start_error is not None:
            raise self.start_error

    def stop(self) -> None:
        self.is_stopped = True

    def seconds_without_executors(self) -> float:
        return self.without_executors

    def status(self) -> SyphonStatus:
        if self.status_error is not None:
            raise self.status_error
        return self.final


@pytest.fixture
def syphon(monkeypatch: pytest.MonkeyPatch) -> FakeSyphon:
    fake = FakeSyphon()
    monkeypatch.setattr("pairbus.syphon.query.Syphon", lambda *_, **__: fake)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("pairbus.syphon.counts.backlog_size", lambda *_: None)
    return fake


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "status.json"
    file.write_text(json.dumps({"running": True, "healthy": True, "time": 1}))  # of an earlier run
    return file


@pytest.fixture(params=["one pairing", "several pairings"])
def several(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "several pairings")


def run(
    path: Path | None,
    *,
    several: bool = False,
    once: bool = False,
    other: tuple[int, ...] = (),
    publish: Publish | None = None,
) -> int:
    runner: SyphonRun | PairingsRun
    end: dict[str, Any] = {"once": once, "status_file": path, "executor_timeout_s": 60.0}
    end["publish"] = publish
    end["other_queues"] = {"a": other, "b": other} if several else other
    if several:
        runner = PairingsRun({"a": OPTIONS, "b": OPTIONS}, "spark://host:1", None, **end)
    else:
        runner = SyphonRun(OPTIONS, "spark://host:1", None, **end)
    return runner.run(*consoles())


def reported(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text())
    return {name: values[name] for name in ("running", "healthy", "ended", "problem")}


def test_spark_that_does_not_start_is_in_the_status_file(
    syphon: FakeSyphon, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    syphon.start_error = RuntimeError("no master")

    assert run(path) == FAILED
    assert "Spark did not start: no master" in capsys.readouterr().err
    assert reported(path) == {
        "running": False,
        "healthy": False,
        "ended": "failed",
        "problem": "Spark did not start: no master",
    }


def test_run_without_executors_fails_after_the_timeout(
    syphon: FakeSyphon, path: Path, several: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    syphon.without_executors = 61
    syphon.final = replace(initial_status(), started=True)

    assert run(path, several=several) == FAILED
    assert syphon.is_stopped
    problem = (
        "Spark had no executors for 61 s. Check the master and its workers. Nothing is lost; run "
        "the syphon again."
    )
    assert problem in capsys.readouterr().err
    assert reported(path) == {
        "running": False,
        "healthy": False,
        "ended": "failed",
        "problem": f"a: {problem}; b: {problem}" if several else problem,
    }


def test_spark_that_was_killed_is_an_error_without_a_traceback(
    syphon: FakeSyphon, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = "Spark ended or cannot be reached any more ([Errno 111] Connection refused)."
    syphon.final = replace(
        initial_status(), running=False, healthy=False, failure=failure, problem=failure
    )

    assert run(path) == FAILED
    assert failure in capsys.readouterr().err
    assert reported(path)["running"] is False
    assert reported(path)["problem"] == failure


def test_unexpected_error_is_in_the_status_file(
    syphon: FakeSyphon, path: Path, several: bool
) -> None:
    syphon.status_error = ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError):
        run(path, several=several)
    assert reported(path)["running"] is False
    assert "ZeroDivisionError: a defect" in reported(path)["problem"]


@pytest.mark.rule("Y8")
@pytest.mark.parametrize("waiting", [0, 40, None])
def test_drained_queues_are_not_all_if_messages_wait_beyond_their_number(
    syphon: FakeSyphon,
    path: Path,
    several: bool,
    waiting: int | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    syphon.final = replace(initial_status(), running=False, drained=True)
    counted: list[tuple[str, ...]] = []

    def count(_: object, queues: tuple[str, ...], usage: object) -> int | None:
        counted.append(queues)
        return waiting

    monkeypatch.setattr("pairbus.syphon.counts.backlog_size", count)
    status = run(path, several=several, once=True, other=(12,))

    assert ("one/x-servicebus-transfer/12",) in counted
    if waiting == 0:
        assert (status, reported(path)["ended"]) == (DRAINED, "drained")
        return
    assert (status, reported(path)["ended"]) == (STUCK, "stuck")
    number = "40" if waiting else "an unknown number of"
    problem = (
        f"{number} messages wait in backlog queue 12, beyond --backlog-queues 10; use "
        "--backlog-queues 13"
    )
    assert problem in " ".join(capsys.readouterr().err.split())
    assert problem in reported(path)["problem"]


@pytest.mark.parametrize(("dead", "expected"), [(0, DRAINED), (5, DEAD_LETTERED)])
def test_exit_status_tells_that_messages_were_dead_lettered(
    syphon: FakeSyphon, path: Path, several: bool, dead: int, expected: int
) -> None:
    counts = Counter({"orders": dead} if dead else {})
    syphon.final = replace(initial_status(), running=False, drained=True, dead_lettered=counts)

    assert run(path, several=several, once=True) == expected
    assert reported(path)["ended"] == "drained"


@pytest.mark.rule("O1")
def test_metrics_are_published_from_the_start_to_the_end(syphon: FakeSyphon, several: bool) -> None:
    syphon.final = replace(initial_status(), running=False, drained=True, moved=Counter(orders=7))
    published: list[set[tuple[str, float]]] = []

    def publish(samples: Iterable[Sample]) -> None:
        published.append({(sample.name, sample.value) for sample in samples})

    assert run(None, several=several, once=True, publish=publish) == DRAINED
    assert (SYPHON_HEALTHY, 1.0) in published[0]
    assert (DRAINED_MESSAGES, 7) in published[-1]
    assert SYPHON_HEALTHY not in dict(published[-1])


@pytest.mark.rule("O1")
def test_count_of_the_backlog_is_not_made_for_metrics_alone(
    syphon: FakeSyphon, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    syphon.final = replace(initial_status(), running=False, drained=True)
    counted: list[object] = []
    monkeypatch.setattr("pairbus.syphon.counts.backlog_size", lambda *_: counted.append(0))

    run(None, several=several, once=True, publish=lambda _: None)

    assert counted == []
