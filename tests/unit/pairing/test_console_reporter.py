"""The reporter of a pairing to a console, without a console."""

import logging
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from pairbus.events import Pinged, SecondaryRestored
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.console_report import MAX_EVENTS
from pairbus.pairing.console_reporter import ConsoleReporter, make_reporter, program_name
from pairbus.pairing.state import PairingState

pytestmark = pytest.mark.rule("O4")

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
TOKEN = "c2VjcmV0"


@pytest.fixture
def options() -> SendAvailabilityOptions:
    return SendAvailabilityOptions(
        console="https://console.example.com", console_token=TOKEN, backlog_queue_count=4
    )


@pytest.fixture
def reporter(options: SendAvailabilityOptions) -> ConsoleReporter:
    return make_reporter(options, "one")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["/usr/bin/gunicorn", "--preload"], "gunicorn"),
        (["orders.py"], "orders.py"),
        (["/srv/orders/__main__.py"], "orders"),
        (["-c"], "-c"),
        ([""], "python"),
        ([], "python"),
    ],
)
def test_application_is_named_after_its_program(arguments: list[str], name: str) -> None:
    assert program_name(arguments) == name


def test_identity_has_the_settings_of_the_pairing(reporter: ConsoleReporter) -> None:
    identity = reporter._identity

    assert (identity.primary_name, identity.backlog_queues) == ("one", 4)
    assert identity.version
    assert identity.application


def test_each_pairing_has_an_id_of_its_own(options: SendAvailabilityOptions) -> None:
    ids = {make_reporter(options, "one")._identity.id for _ in range(10)}

    assert len(ids) == 10


def test_events_before_the_first_report_are_bounded(reporter: ConsoleReporter) -> None:
    for _ in range(10 * MAX_EVENTS):
        reporter.observe(SecondaryRestored(when=NOON))
        reporter.observe(Pinged(when=NOON, path="orders"))

    assert len(reporter._observed) == MAX_EVENTS
    assert all(isinstance(event, SecondaryRestored) for event in reporter._observed)
    assert reporter._changes.qsize() == 1  # the thread is woken once


def test_reporter_that_was_not_started_has_ended(reporter: ConsoleReporter) -> None:
    reporter.stop()

    assert reporter.has_ended()


def test_pairing_works_without_reports_if_no_thread_can_be_started(
    options: SendAvailabilityOptions,
    reporter: ConsoleReporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pairing = PairingState(
        options,
        primary="one",
        secondary="two",
        queues=("one/x-servicebus-transfer/0",),
        on_change=lambda: None,
        start_recovery=lambda path: None,
        observe=reporter.observe,
    )

    reporter.start(pairing, lambda function: function())

    assert reporter.has_ended()
    assert "Nothing is reported to the console: can't start new thread" in caplog.text


def test_error_that_is_not_of_the_console_is_logged_once_with_its_traceback(
    reporter: ConsoleReporter, caplog: pytest.LogCaptureFixture
) -> None:
    error = KeyError("a mistake of ours")

    for failures in range(1, 5):
        reporter._log_failure(error, failures)

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_token_is_in_no_representation(reporter: ConsoleReporter, options: Any) -> None:
    assert TOKEN not in repr(reporter) + repr(options) + str(reporter._address)
