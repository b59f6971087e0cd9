"""One informative line of an error of Spark, and what to do about it."""

import re

_PY4J_PREFIX = re.compile(r"An error occurred while calling \S+\n: ")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH\][^\n]*?(\d+\.\d+)[^\n]*?(\d+\.\d+)")
_PYTHON_ERROR = re.compile(
    r"^(?:Caused by: )?((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Unavailable|NotFound)): (.+)$"
)
_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")
_MISSING_FILE = re.compile(
    r"ca_file '([^']+)'[^\n]*No such file|FileNotFoundError: \[Errno 2\][^\n]*: '([^']+)'"
)
_GRPC = re.compile(
    r"RPC that terminated with:\s+status = StatusCode\.(\w+)\s+details = \"(.*)\"$", re.MULTILINE
)


def error_summary(error: object) -> str:
    """Return the most informative line of a Spark error, which may contain stack traces of Java and
    Python. For what is missing on a worker, it says what to do."""
    text = _PY4J_PREFIX.sub("", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if missing_file := _missing_file(text):
        return missing_file
    pairbus_lines = [line for line in lines if line.startswith("pairbus.errors.")]
    if pairbus_lines:
        return pairbus_lines[-1].partition(": ")[2] or pairbus_lines[-1]
    return (
        _on_a_worker(text)
        or _grpc_error(text)
        or _python_error(lines)
        or (lines[0] if lines else type(error).__name__)
    )


def _on_a_worker(text: str) -> str | None:
    if match := _NO_PROGRAM.search(text):
        return (
            f"A machine of Spark has no Python at {match[1]}. Install it there, or set "
            "PYSPARK_PYTHON to a path that exists on the driver and on all workers."
        )
    if match := _VERSIONS.search(text):
        return (
            f"Driver and workers have different versions of Python ({match[2]} and {match[1]}). "
            "Set PYSPARK_PYTHON to an interpreter of the driver's version."
        )
    if match := _MISSING_MODULE.search(text):
        return (
            f"The Python of Spark's workers has no module {match[1]!r}. Install pyspark, pyarrow "
            "and pandas there, or set PYSPARK_PYTHON to an interpreter that has them."
        )
    return None


def _grpc_error(text: str) -> str | None:
    """Return what an error of gRPC says, for a Spark Connect server."""
    match = _GRPC.search(text)
    if match is None:
        return None
    if match[1] == "UNAVAILABLE":
        return f"The Spark Connect server cannot be reached: {match[2]}."
    return match[2]


def _missing_file(text: str) -> str | None:
    match = _MISSING_FILE.search(text)
    if match is None:
        return None
    return (
        f"A machine of Spark has no file {match[1] or match[2]}. Copy it to the same path on the "
        "driver and on all workers."
    )


def _python_error(lines: list[str]) -> str | None:
    """Return the last error of a Python stack trace in a failed task."""
    if not any(line.startswith("Traceback (most recent call last)") for line in lines):
        return None
    errors = [
        match[0]
        for line in lines
        if (match := _PYTHON_ERROR.match(line))
        and not match[1].startswith(("org.", "java.", "py4j."))
    ]
    return errors[-1] if errors else None
