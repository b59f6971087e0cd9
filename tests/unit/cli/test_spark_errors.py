"""One informative line from an error of Spark."""

import pytest

from pairbus.cli.spark_errors import first_logged_error
from pairbus.spark.error_summary import error_summary

STACK = "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\ntwo", "one"),
        (
            "An error occurred while calling o33.parquet.\n: java.io.IOException: full\n" + STACK,
            "java.io.IOException: full",
        ),
        (f"java.lang.X\n{STACK}pairbus.errors.EntityNotFound: no queue\n", "no queue"),
        ("pairbus.errors.EntityNotFound", "pairbus.errors.EntityNotFound"),
    ],
)
def test_summary_is_the_most_informative_line(text: str, line: str) -> None:
    assert error_summary(RuntimeError(text)) == line


@pytest.mark.parametrize(
    ("status", "summary"),
    [
        ("UNAVAILABLE", 'The Spark Connect server cannot be reached: refused by "x".'),
        ("INTERNAL", 'refused by "x"'),
    ],
)
def test_error_of_spark_connect_is_its_details(status: str, summary: str) -> None:
    text = (
        "<_InactiveRpcError of RPC that terminated with:\n"
        f"\tstatus = StatusCode.{status}\n"
        '\tdetails = "refused by "x""\n'
        '\tdebug_error_string = "refused"\n>'
    )

    assert error_summary(RuntimeError(text)) == summary


@pytest.mark.parametrize(
    ("cause", "summary"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/env/bin/python": error=2, No such file',
            (
                "A machine of Spark has no Python at /opt/env/bin/python. Install it there, or set "
                "PYSPARK_PYTHON to a path that exists on the driver and on all workers."
            ),
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'",
            (
                "The Python of Spark's workers has no module 'pyarrow'. Install pyspark, pyarrow "
                "and pandas there, or set PYSPARK_PYTHON to an interpreter that has them."
            ),
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/etc/ca.pem'",
            (
                "A machine of Spark has no file /etc/ca.pem. Copy it to the same path on the "
                "driver and on all workers."
            ),
        ),
        (
            (
                "pairbus.errors.ConfigurationError: ca_file '/etc/ca.pem' or certificate_file None "
                "cannot be used: [Errno 2] No such file or directory"
            ),
            (
                "A machine of Spark has no file /etc/ca.pem. Copy it to the same path on the "
                "driver and on all workers."
            ),
        ),
        (
            (
                "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
                "version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor "
                "versions."
            ),
            (
                "Driver and workers have different versions of Python (3.11 and 3.10). Set "
                "PYSPARK_PYTHON to an interpreter of the driver's version."
            ),
        ),
        ("ValueError: not this", "ValueError: not this"),
    ],
    ids=["interpreter", "package", "file", "CA file", "version", "other"],
)
def test_summary_of_a_failed_task_is_its_cause(cause: str, summary: str) -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent "
        "failure: Lost task 0.3: org.apache.spark.api.python.PythonException: Traceback (most "
        f"recent call last):\nTraceback (most recent call last):\n  File x\n{cause}\n\n{STACK}"
        "Driver stacktrace:\norg.apache.spark.SparkException: Job aborted\n"
    )

    assert error_summary(text) == summary


def test_summary_of_an_error_without_text_is_its_class() -> None:
    assert error_summary(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", None),
        ("WARNING: Using incubator modules: jdk.incubator.vector\n", None),
        (f'Exception in thread "main" org.apache.spark.X: no master\n{STACK}', "no master"),
        (
            f"WARNING: x\n12:20:08 ERROR Committer: no folder\n12:20:09 ERROR Utils: gone\n{STACK}",
            "no folder",
        ),
    ],
)
def test_first_error_is_found_in_a_log(log: str, line: str | None) -> None:
    assert first_logged_error(log) == line
