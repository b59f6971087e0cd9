"""One informative line from an error of Spark."""

import pytest

from pairbus.cli.spark_errors import error_summary, first_logged_error

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
