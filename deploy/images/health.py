"""Health check of the images: exit with 0 if one of the given parts works, and with 1 if none does.

    health.py --console 8710                    the console answers /healthz on this port
    health.py --port 5671                       something accepts connections on this port
    health.py --status-file FILE                the syphon has written its status file recently

A syphon that waits for a namespace works. Its field `healthy` is for alerts: to restart the syphon
does not help then.
"""

import argparse
import http.client
import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TIMEOUT_S = 3.0


def console_problem(port: int) -> str | None:
    """Return the reason why the console does not work, or None. It has TLS or not."""
    # The certificate is for other names than localhost.
    context = ssl._create_unverified_context()
    problem = "no answer"
    for connection in (
        http.client.HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=context),
        http.client.HTTPConnection("localhost", port, timeout=TIMEOUT_S),
    ):
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as exc:
            problem = str(exc)
            continue
        finally:
            connection.close()
        return None if status == http.client.OK else f"The console answers with {status}."
    return f"The console does not answer on port {port}: {problem}."


def port_problem(port: int) -> str | None:
    """Return the reason why a port accepts no connections, or None."""
    try:
        socket.create_connection(("localhost", port), TIMEOUT_S).close()
    except OSError as exc:
        return f"Port {port} accepts no connections: {exc}."
    return None


def status_file_problem(path: Path, max_age_s: float, now: float) -> str | None:
    """Return the reason why the syphon does not work, or None."""
    try:
        status = json.loads(path.read_text(encoding="utf-8"))
        written = float(status["time"])
    except (OSError, ValueError, KeyError) as exc:
        return f"{path} cannot be read: {exc}."
    if now - written > max_age_s:
        return f"{path} was written {now - written:.0f} s ago."
    return None


def problems(options: argparse.Namespace) -> Iterator[str | None]:
    """Yield the problem of each part that was asked for, or None for one that works."""
    if options.console is not None:
        yield console_problem(options.console)
    if options.port is not None:
        yield port_problem(options.port)
    if options.status_file is not None:
        yield status_file_problem(options.status_file, options.max_age, time.time())


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the health of a container.")
    parser.add_argument("--console", type=int, metavar="PORT")
    parser.add_argument("--port", type=int)
    parser.add_argument("--status-file", type=Path, metavar="FILE")
    parser.add_argument("--max-age", type=float, default=60.0, metavar="SECONDS")
    texts = []
    for problem in problems(parser.parse_args()):
        if problem is None:
            return 0
        texts.append(problem)
    print(" ".join(texts) or "Nothing to check.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
