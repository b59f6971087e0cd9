"""`pairbus dead-letters redrive` in the middle of a run: it is interrupted, and run again."""

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pairbus.amqp.client import Client, ClientOptions, Management, Receiver, Sender
from pairbus.drill.reconciliation import MessageKey
from pairbus.servicebus.management import DEAD_LETTERED
from tests.commands import RunningCommand, run
from tests.faults.matrix.relays import Relay
from tests.messages import id_of, message, peek_all
from tests.processes import frozen
from tests.tiers import when_admitted

if TYPE_CHECKING:
    from tests.faults.matrix.environment import MatrixEnvironment

QUEUE = "redriven"
"""A queue of the secondary, which is available while the primary is down."""
DEAD_LETTERS = f"{QUEUE}/$deadletterqueue"
COUNT = 60
RATE = 20
"""Messages a second, so that the fault comes in the middle."""
LOCK_S = 10
ATTEMPTS = 20


class Redrive:
    """Dead letters of a queue, and the command that redrives them."""

    def __init__(self, environment: "MatrixEnvironment", relay: Relay) -> None:
        self._environment = environment
        self._relay = relay
        self._expected: set[str] = set()
        with environment.administration(environment.secondary) as administration:
            administration.create_queue(
                QUEUE, lock_duration=timedelta(seconds=LOCK_S), max_delivery_count=2147483647
            )

    def lost(self) -> list[MessageKey]:
        """Return the dead letters that are neither redriven nor dead letters still."""
        found = set(self._ids(QUEUE)) | set(self._ids(DEAD_LETTERS))
        return [MessageKey(QUEUE, id) for id in sorted(self._expected - found)]

    @contextlib.contextmanager
    def interrupted(self, kind: str) -> Iterator[None]:
        """Start a redrive, interrupt it while it moves messages, and run it again at the end."""
        self._put()
        before = len(self._ids(QUEUE))
        command = RunningCommand(*self._arguments, **self._variables)
        try:
            self._environment.wait(
                lambda: len(self._ids(QUEUE)) > before or command.process.poll() is not None,
                "redriven messages",
            )
            assert command.process.poll() is None, command.process.communicate()
            with self._fault(command, kind):
                yield
        finally:
            if command.process.poll() is None:
                os.killpg(command.process.pid, signal.SIGKILL)
            command.process.communicate()
        self._complete()

    @contextlib.contextmanager
    def _fault(self, command: RunningCommand, kind: str) -> Iterator[None]:
        if kind == "kill":
            os.killpg(command.process.pid, signal.SIGKILL)
            assert command.process.wait() == -signal.SIGKILL
            assert self._ids(DEAD_LETTERS), "the redrive was over before it was killed"
            yield
            return
        if kind == "freeze":
            with frozen(command.process.pid):
                yield
        else:
            cut = self._environment.cut(self._relay, answers_only=kind == "lose-answers")
            try:
                yield
                assert cut.silenced, "the redrive has no connection to cut"
            finally:
                cut.heal()
        # It continues, or ends with an error.
        self._environment.wait(lambda: command.process.poll() is not None, "the end of the redrive")

    def _complete(self) -> None:
        """Run the command until no dead letter is left. A killed one may hold locks."""
        output = ""
        for _ in range(ATTEMPTS):
            if not self._ids(DEAD_LETTERS):
                return
            result = run(*self._arguments, **self._variables)
            output = result.stdout + result.stderr
        raise AssertionError(f"dead letters are left after {ATTEMPTS} redrives: {output}")

    @property
    def _arguments(self) -> tuple[str, ...]:
        return (
            *("dead-letters", "redrive", "--namespace", "secondary", "--entity", QUEUE),
            *("--no-spark", "--max-rate", str(RATE)),
        )

    @property
    def _variables(self) -> dict[str, str]:
        secondary = self._environment.secondary.connection_string
        return {
            "PAIRBUS_SECONDARY": self._relay.address(secondary),
            "XDG_STATE_HOME": str(self._environment.folder),
        }

    def _put(self) -> None:
        """Add dead letters."""
        secondary = self._environment.secondary.connection_string
        ids = [f"redriven-{uuid.uuid4()}" for _ in range(COUNT)]
        # A queue of its own: the messages that were redriven stay in the other one.
        with Client(ClientOptions.from_connection_string(secondary)) as client:
            with Sender(client, QUEUE) as sender:
                when_admitted(partial(sender.send_batch, [message(id) for id in ids]))
            wanted, others = set(ids), []
            management = Management(client, QUEUE)
            while wanted:
                receiver = Receiver(client, QUEUE)
                for delivery in when_admitted(partial(receiver.receive, COUNT)):
                    id = id_of(delivery.payload)
                    if id in wanted:
                        when_admitted(
                            partial(
                                management.settle, [delivery.tag], DEAD_LETTERED, reason="Broken"
                            )
                        )
                        wanted.discard(id)
                    else:
                        others.append(delivery)
                receiver.close()
        self._expected.update(ids)

    def _ids(self, path: str) -> list[str]:
        secondary = self._environment.secondary.connection_string
        return [id_of(payload) for payload in peek_all(secondary, path)]
