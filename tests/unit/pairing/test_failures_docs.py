"""The tables of docs/reference/failures.md say what the code decides."""

import inspect
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from azure.core.exceptions import AzureError, HttpResponseError
from azure.servicebus import exceptions as sdk

from pairbus.options import FailureKind
from pairbus.pairing.failures import (
    CLASSES,
    CONDITIONS,
    HIDDEN,
    MANAGEMENT_LINK_LOST,
    BacklogFailure,
    backlog_failure_of,
    classify_failure,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "failures.md"
KINDS = {kind.value: kind for kind in FailureKind}
BACKLOG = {
    "pulled": BacklogFailure.QUEUE_UNAVAILABLE,
    "rejected": BacklogFailure.MESSAGE_REJECTED,
    "busy": BacklogFailure.BUSY,
    "link lost": BacklogFailure.LINK_LOST,
}
"""The words of the page for what happens to a backlog queue."""
pytestmark = pytest.mark.rule("S2", "S4")


class Row(NamedTuple):
    """One row of a table: the first cell, the kind, and the word for the backlog."""

    text: str
    kind: str
    backlog: str


def rows_of(heading: str) -> list[Row]:
    """Return the rows of the table below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    assert lines[0].endswith("| kind | backlog |"), heading
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines[2:]]


def token_error(status: int | None) -> HttpResponseError:
    error = HttpResponseError("no token")
    error.status_code = status
    return error


def class_error(name: str) -> Exception:
    cls = getattr(sdk, name)
    takes_message = "message" in inspect.signature(cls).parameters
    error: Exception = cls("x") if takes_message else cls()
    return error


STATUSES: dict[str, list[int | None]] = {
    "408, 5xx, or no status because there was no response": [408, 500, 503, 599, None],
    "429": [429],
    "401, 403, 404, any other 4xx": [400, 401, 403, 404, 409, 410, 428, 430, 499],
}
PLAIN: dict[str, list[Exception]] = {
    "a management link": [
        sdk.ServiceBusError("x", condition=HIDDEN),
        sdk.ServiceBusError("x", error=ValueError(MANAGEMENT_LINK_LOST)),
    ],
    "wraps a TypeError": [
        sdk.ServiceBusError("x", error=error)
        for error in (TypeError(), ValueError(), KeyError(), struct.error(), RecursionError())
    ],
    "anything else": [
        sdk.ServiceBusError("x"),
        sdk.ServiceBusError("x", error=RuntimeError()),
        sdk.ServiceBusError("x", condition="amqp:illegal-state"),
    ],
}
OTHERS: dict[str, list[Exception]] = {
    "OSError": [OSError(), TimeoutError(), ConnectionRefusedError()],
    "any other error of azure-core": [AzureError("x")],
    "everything else": [TypeError(), ValueError(), RuntimeError(), AttributeError()],
}


def examples_of(
    rows: list[Row], examples: dict[str, list[Exception]]
) -> Iterator[tuple[Row, Exception]]:
    """Yield the rows with errors that they are about, by the beginning of their text."""
    for row in rows:
        found = [errors for start, errors in examples.items() if row.text.startswith(start)]
        assert len(found) == 1 or row.backlog.startswith("does not occur"), row
        for error in found[0] if found else []:
            yield row, error


def cases() -> Iterator[tuple[Row, Exception]]:
    """Yield every row of the tables with each error that it names."""
    tokens = {text: [token_error(status) for status in given] for text, given in STATUSES.items()}
    yield from examples_of(rows_of("1. A token was refused"), tokens)
    for row in rows_of("2. The service gave an AMQP condition"):
        for condition in re.findall(r"`([^`]+)`", row.text):
            yield row, sdk.ServiceBusError("x", condition=condition)
    for row in rows_of("3. The class"):
        for name in re.findall(r"\b[A-Z]\w+", row.text):
            yield row, class_error(name)
    yield from examples_of(rows_of("4. A plain ServiceBusError"), PLAIN)
    yield from examples_of(rows_of("5. Not an error of the SDK"), OTHERS)


def is_without_connection(error: Exception) -> bool:
    """Return whether there was no connection, no answer or no token."""
    if isinstance(error, HttpResponseError):
        return error.status_code is None
    classes = (
        sdk.ServiceBusConnectionError,
        sdk.ServiceBusCommunicationError,
        sdk.OperationTimeoutError,
        sdk.ServiceBusAuthenticationError,
        OSError,
    )
    return type(error) is AzureError or isinstance(error, classes)


CASES = list(cases())


@pytest.mark.parametrize(
    ("row", "error"),
    CASES,
    ids=[f"{number}-{error!r}"[:60] for number, (_, error) in enumerate(CASES)],
)
def test_row_agrees_with_the_code(row: Row, error: Exception) -> None:
    kind = classify_failure(error)
    assert kind is KINDS[row.kind]
    assert backlog_failure_of(error, kind, link_open=True) is BACKLOG[row.backlog]
    before_open = BACKLOG["busy"] if kind is FailureKind.BUSY else BACKLOG["pulled"]
    if is_without_connection(error):
        before_open = BacklogFailure.HOST_UNREACHABLE
    assert backlog_failure_of(error, kind, link_open=False) is before_open


def test_tables_have_every_condition_and_class() -> None:
    conditions = {
        condition
        for row in rows_of("2. The service gave an AMQP condition")
        for condition in re.findall(r"`([^`]+)`", row.text)
    }
    classes = {
        name for row in rows_of("3. The class") for name in re.findall(r"\b[A-Z]\w+", row.text)
    }

    assert conditions == CONDITIONS.keys()
    assert classes == {cls.__name__ for cls in CLASSES} - {"ServiceBusError"}  # table 4


def test_page_explains_every_word_for_the_backlog() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Failures of backlog queues")[2]
    explained = re.findall(r"^\| (.+?) \|", section.partition("\n## ")[0], re.MULTILINE)

    assert explained == ["backlog", "---", *BACKLOG]
