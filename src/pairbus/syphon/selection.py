"""The question which messages a syphon moves, for the process that plans its micro-batches.

That process has no Spark session, and the filter is an expression or a function for Spark. So the
process that started the query answers, over a Unix socket in the private folder of the syphon: it
applies the transformation to messages that were peeked.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pairbus.spark.local_server import LocalServer, request
from pairbus.spark.messages import ReceivedMessage
from pairbus.syphon.detailed_rows import DETAILED_SCHEMA, DetailedMessage, to_detailed_batch
from pairbus.syphon.restore import restore

logger = logging.getLogger(__name__)

TIMEOUT_S = 60.0


class Selection(Protocol):
    """Tells which messages a transformation selects."""

    def select(self, queue: str, payloads: Sequence[bytes], now_ms: int) -> list[bool]:
        """Return True for each peeked message that is to be moved or dead-lettered."""


class UnknownSelection:
    """Counts every message as selected, where the transformation cannot be asked: the process that
    started a query on Spark Connect is on another machine."""

    def select(self, queue: str, payloads: Sequence[bytes], now_ms: int) -> list[bool]:
        return [True] * len(payloads)


@dataclass(frozen=True)
class SelectionClient:
    """Asks the server. It consists of plain values, so that Spark can send it to a process."""

    address: str
    deduct: bool

    def select(self, queue: str, payloads: Sequence[bytes], now_ms: int) -> list[bool]:
        """Return True for each peeked message that is to be moved or dead-lettered. If the server
        does not answer, all are: a run must not end as drained without knowing."""
        if not payloads:
            return []
        sink = pa.BufferOutputStream()
        batch = _peeked_rows(queue, payloads, now_ms if self.deduct else None)
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        try:
            rows_in_arrow = sink.getvalue().to_pybytes()
            selected = json.loads(request(self.address, rows_in_arrow, timeout_s=TIMEOUT_S))
        except OSError as exc:
            logger.warning("The filter could not be evaluated: %s", exc)
            selected = None
        if selected is None:
            return [True] * len(payloads)
        chosen = set(selected)
        return [index in chosen for index in range(len(payloads))]


@dataclass(frozen=True)
class SessionSelection:
    """Asks a session of this process. Raises the errors of Spark and of the transformation."""

    spark: SparkSession
    transform: Callable[[DataFrame], DataFrame]
    deduct: bool

    def check(self) -> None:
        """Apply the transformation to no rows. Raises ConfigurationError if it is not valid."""
        self.transform(self.spark.createDataFrame([], DETAILED_SCHEMA))

    def select(self, queue: str, payloads: Sequence[bytes], now_ms: int) -> list[bool]:
        """Return True for each peeked message that is to be moved or dead-lettered."""
        if not payloads:
            return []
        rows = _peeked_rows(queue, payloads, now_ms if self.deduct else None)
        chosen = set(_selected(self.spark, self.transform, pa.Table.from_batches([rows])))
        return [index in chosen for index in range(len(payloads))]


def _peeked_rows(queue: str, payloads: Sequence[bytes], now_ms: int | None) -> pa.RecordBatch:
    """Return peeked messages as rows for a transformation, with their indexes as lock tokens."""
    rows = []
    for index, payload in enumerate(payloads):
        received = ReceivedMessage(queue, payload, index.to_bytes(4, "big"))
        rows.append(DetailedMessage(received, restore(received, now_ms)))
    return to_detailed_batch(rows)


def _selected(
    spark: SparkSession, transform: Callable[[DataFrame], DataFrame], table: pa.Table
) -> list[int]:
    """Return the indexes of the rows that a transformation selects."""
    rows = transform(spark.createDataFrame(table)).select("lock_token").collect()
    return [int.from_bytes(row[0], "big") for row in rows]


class SelectionServer:
    """Answers which messages a transformation selects, until it is closed."""

    def __init__(
        self, folder: Path, spark: SparkSession, transform: Callable[[DataFrame], DataFrame]
    ) -> None:
        """`folder` belongs to the user alone."""
        self._spark = spark
        self._transform = transform
        self._server = LocalServer(folder / "selection", self._answer, timeout_s=TIMEOUT_S)
        self.address = self._server.address

    def close(self) -> None:
        """Stop. Idempotent."""
        self._server.close()

    def _answer(self, rows_in_arrow: bytes) -> bytes:
        table = pa.ipc.open_stream(rows_in_arrow).read_all()
        selected: list[int] | None
        try:
            selected = _selected(self._spark, self._transform, table)
        except Exception:  # an error of Spark, or of the function of the user
            logger.warning("The filter could not be evaluated.", exc_info=True)
            selected = None
        return json.dumps(selected).encode()
