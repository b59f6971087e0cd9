"""A separate process that runs embedded syphons on one Spark session, one after the other.

It reads requests as lines of JSON, and writes a line for each request. The requests are `{"start":
OPTIONS}`, `{"stop": null}` and `{"status": null}`. A namespace is a connection string, or the
arguments of `ClientOptions.from_connection_string`. The process ends when its standard input is
closed.
"""

import json
import sys
from typing import Any

from benchmarks.child_process import ChildProcess
from pairbus.amqp.client import ClientOptions
from pairbus.spark.sessions import create_session
from pairbus.syphon.options import SyphonOptions
from pairbus.syphon.query import Syphon


class SyphonProcess(ChildProcess):
    """Starts the process, and sends requests to it."""

    def __init__(self) -> None:
        super().__init__("benchmarks.syphon_process")

    def start(self, **options: Any) -> None:
        self._request("start", options)

    def stop(self) -> None:
        self._request("stop", None)

    def status(self) -> dict[str, Any]:
        return self._request("status", None)

    def _request(self, name: str, options: dict[str, Any] | None) -> dict[str, Any]:
        self.write_line(json.dumps({name: options}))
        while line := self.read_line():
            if line.startswith("{"):  # the JVM may write other lines
                response: dict[str, Any] = json.loads(line)
                return response
        raise AssertionError("the process of the syphon ended")


def main() -> None:
    session = syphon = None
    for line in sys.stdin:
        response: dict[str, Any] = {}
        for name, options in json.loads(line).items():
            if name == "start":
                session = create_session(None) if session is None else session
                for role in ("primary", "secondary"):
                    if not isinstance(options[role], str):
                        options[role] = ClientOptions.from_connection_string(**options[role])
                syphon = Syphon(SyphonOptions(**options), spark=session)
                syphon.start()
            elif syphon is not None and name == "stop":
                syphon.stop()
            elif syphon is not None:
                status = syphon.status()
                response = {
                    "running": status.running,
                    "moved": sum(status.moved.values()),
                    "batches": status.batches,
                    "errors": status.errors,
                    "unsettled": status.unsettled,
                    "failure": status.failure,
                }
        print(json.dumps(response), flush=True)
    if session is not None:
        session.stop()


if __name__ == "__main__":
    main()
