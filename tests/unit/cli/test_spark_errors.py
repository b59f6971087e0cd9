"""What Spark says when it fails, in a line."""

import pytest

from pairbus.cli.spark_errors import error_summary, first_logged_error

STACK = "\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)\n"


@pytest.mark.parametrize(
    ("said", "line"),
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
def test_of_an_error_with_a_stack_it_is_the_line_that_says_most(said: str, line: str) -> None:
    assert error_summary(RuntimeError(said)) == line


def test_an_error_without_a_word_is_named() -> None:
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
def test_of_a_log_it_is_what_java_met_first(log: str, line: str | None) -> None:
    assert first_logged_error(log) == line
