"""Transformations of the backlog: a filter in SQL, a function of the user, and their checks."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError
from pairbus.spark.sessions import is_remote
from pairbus.syphon.restore import BACKLOG_SCHEMA

Transform = Callable[[DataFrame], DataFrame]
"""A function of the user. It gets the rows of the backlog and returns those to move."""

SINK_COLUMNS = tuple(column.split()[0] for column in BACKLOG_SCHEMA.split(", "))
_ALLOWED_OPERATORS = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "Filter",
        "MapInArrow",
        "MapInPandas",
        "PythonMapInArrow",
        "Project",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
    }
)
"""Operators that keep each row in its partition and in its order."""
_OPERATOR = re.compile(r"^[\s:+|!*~-]*([A-Z][A-Za-z0-9]*)", re.MULTILINE)


def select_rows(
    rows: DataFrame, only: tuple[str, ...], where: str | None, transform: Transform | None
) -> DataFrame:
    """Return the rows to move, with the columns of the sink.

    Messages that have to be dead-lettered pass the filters, but not necessarily the function.
    Raises ConfigurationError if the expression or the function is not valid.
    """
    has_problem = rows["problem"].isNotNull()
    if only:
        rows = rows.where(rows["destination"].isin(list(only)) | has_problem)
    if where is not None:
        try:
            with _without_log():
                rows = rows.where(_functions(rows).expr(where) | has_problem)
        except PySparkException as exc:
            raise ConfigurationError(f"where is not a valid condition: {_summary(exc)}") from exc
    if transform is None:
        return rows.select(*SINK_COLUMNS)
    return _apply(rows, transform)


def _functions(rows: DataFrame) -> Any:
    """Return the functions for columns of a frame. Those of `pyspark.sql` are for Spark Connect
    only if an environment variable says so, which a process with other sessions does not set."""
    if is_remote(rows.sparkSession):
        from pyspark.sql.connect import functions as remote_functions

        return remote_functions
    from pyspark.sql import functions

    return functions


def _apply(rows: DataFrame, transform: Transform) -> DataFrame:
    try:
        with _without_log():
            result: Any = transform(rows)
    except PySparkException as exc:
        raise ConfigurationError(f"transform is not valid: {_summary(exc)}") from exc
    if not isinstance(result, DataFrame):
        raise ConfigurationError(f"transform must return a DataFrame, not {type(result).__name__}.")
    _check_columns(rows.schema, result.schema)
    if rows.isStreaming:
        _check_operators(result)
    return result.select(*SINK_COLUMNS)


def _check_columns(before: StructType, after: StructType) -> None:
    for name in SINK_COLUMNS:
        if name not in after.names:
            raise ConfigurationError(
                f"transform must keep the column {name}. Add columns with withColumn, or select it."
            )
        expected, actual = before[name].dataType, after[name].dataType
        if actual != expected:
            raise ConfigurationError(
                f"transform must not change the type of the column {name} from "
                f"{expected.simpleString()} to {actual.simpleString()}."
            )


def _check_operators(result: DataFrame) -> None:
    """Refuse operators that add rows, or move them to another partition: each row has the lock of
    one message, and messages of a session must stay in order."""
    java_frame = getattr(result, "_jdf", None)
    if java_frame is None:  # Spark Connect does not show plans to the client
        return
    plan = java_frame.queryExecution().analyzed().toString()
    for operator in _OPERATOR.findall(plan):
        if operator not in _ALLOWED_OPERATORS:
            raise ConfigurationError(
                f"transform uses the operator {operator}, which may add, merge or reorder rows. "
                "Use where, select, withColumn and functions of single rows."
            )


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep PySpark from logging an error of analysis, which is raised as well."""
    logger = logging.getLogger("SQLQueryContextLogger")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _summary(exc: PySparkException) -> str:
    """Return the message of an error of Spark in one line, without the plan that follows it."""
    text = exc.getMessage() or str(exc)
    line = text.strip().splitlines()[0]
    return re.sub(r"^\[[A-Z_.]+\] ", "", line)
