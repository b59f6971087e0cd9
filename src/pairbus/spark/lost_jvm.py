"""Hide the stack traces that PySpark prints when its JVM is gone. The error itself is reported."""

import logging

from pyspark.sql import SparkSession

PY4J_MESSAGE = "Exception while sending command."


def hide_lost_jvm(session: SparkSession) -> None:
    """Keep the threads of a session that notice the end of the JVM from printing to the console."""
    # Py4J uses the root logger.
    logging.getLogger().addFilter(_is_not_from_py4j)
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    return record.msg != PY4J_MESSAGE
