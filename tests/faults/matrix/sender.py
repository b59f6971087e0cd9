"""The sender process: a paired client with eight senders. It runs until its input ends.

    python -m tests.faults.matrix.sender < config

The first line of its input is its configuration as JSON. It logs each call before and after. A call
that fails is repeated with the same messages for some time, as in an application. Some messages are
invalid. SIGUSR1 prints the stack of each thread.
"""

import faulthandler
import json
import random
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusError

from pairbus import SendAvailabilityOptions, pair_namespace
from pairbus.errors import PairbusError, SendUnavailable
from pairbus.events import Event, StateChanged
from tests.faults.matrix.sender_log import REJECTED, SenderLogWriter

SENDERS = 8
RETRY_FOR_S = 30.0
"""The time for which a failed call is repeated."""
RETRY_DELAY_S = 0.2
SIZES = (1, 1, 1, 1, 4, 10)
"""The number of messages in a call: one, a list, or a batch."""
BATCH_SIZE = 10
INVALID_SHARE = 0.05
"""The number of messages with an invalid id, for each call."""
INVALID_ID_LENGTH = 200
"""A message id has at most 128 characters."""
EXPECTED_ERRORS = (AzureError, PairbusError)
SDK_OPTIONS: dict[str, Any] = {
    "retry_total": 1,
    "retry_backoff_factor": 0.05,
    "retry_backoff_max": 1,
}


@dataclass(frozen=True, kw_only=True)
class SenderConfig:
    """The configuration of a sender process."""

    primary: str
    secondary: str
    name: str
    backlog_queues: int
    log: str
    """The path of its log."""
    prefix: str
    """The prefix of message ids, which is unique for this process."""
    seed: str
    failover_interval_s: float
    failback: str
    queues: tuple[str, ...]
    with_sessions: tuple[str, ...]
    topics: tuple[str, ...]
    console: str
    """The address of the console, and the token for senders."""
    console_token: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "SenderConfig":
        values: Any = json.loads(text)
        for name in ("queues", "with_sessions", "topics"):
            values[name] = tuple(values[name])
        return cls(**values)

    @property
    def paths(self) -> tuple[str, ...]:
        return self.queues + self.with_sessions + self.topics


class SenderThread:
    """One sender in one thread."""

    def __init__(
        self, config: SenderConfig, paired_client: Any, number: int, stop: threading.Event
    ) -> None:
        self._config = config
        self._client = paired_client
        self._number = number
        self._stop = stop
        self._path = config.paths[number % len(config.paths)]
        # Order is promised for the sessions of one process, so each has its own.
        self._session = (
            f"{config.prefix}-session-{number}" if self._path in config.with_sessions else None
        )
        self._rng = random.Random(f"{config.seed}, sender {number}")
        self._created = 0
        self._log = SenderLogWriter(Path(config.log))
        self.thread = threading.Thread(target=self._run, name=f"sender {number}")

    def _run(self) -> None:
        try:
            if self._path in self._config.topics:
                sender = self._client.get_topic_sender(self._path)
            else:
                sender = self._client.get_queue_sender(self._path)
            with sender:
                while not self._stop.is_set():
                    if self._rng.random() < INVALID_SHARE:
                        self._send_invalid(sender)
                    self._send(sender, [self._create() for _ in range(self._rng.choice(SIZES))])
                    self._stop.wait(self._rng.uniform(0.08, 0.2))
        except Exception:  # noqa: BLE001  the run reports it
            self._log.write("unexpected", error=traceback.format_exc())
        finally:
            self._log.close()

    def _create(self) -> ServiceBusMessage:
        self._created += 1
        id = f"{self._config.prefix}-{self._number}-{self._created}"
        body = b"x" * self._rng.choice((20, 200, 2000))
        return ServiceBusMessage(body, message_id=id, session_id=self._session)

    def _send(self, sender: Any, messages: list[ServiceBusMessage]) -> None:
        deadline = time.monotonic() + RETRY_FOR_S
        while messages:
            self._record("attempt", messages)
            try:
                self._call(sender, messages)
            except SendUnavailable as exc:
                not_sent = [messages[position].message_id for position in exc.not_sent]
                self._record("acknowledged", [messages[position] for position in exc.stored])
                messages = [message for n, message in enumerate(messages) if n not in exc.stored]
                self._record("failed", messages, error=type(exc).__name__, not_sent=not_sent)
            except EXPECTED_ERRORS as exc:
                self._record("failed", messages, error=type(exc).__name__)
            else:
                self._record("acknowledged", messages)
                return
            if self._stop.wait(RETRY_DELAY_S) or time.monotonic() > deadline:
                return

    def _send_invalid(self, sender: Any) -> None:
        """Send a message that every namespace rejects. Its call fails, and no other."""
        properties = AmqpMessageProperties(message_id="x" * INVALID_ID_LENGTH)
        properties.group_id = self._session
        try:
            sender.send_messages(AmqpAnnotatedMessage(data_body=b"x", properties=properties))
        except EXPECTED_ERRORS as exc:
            self._log.write(REJECTED if type(exc) is ServiceBusError else "not rejected")
        else:
            raise AssertionError("a message with an invalid id was accepted")

    def _call(self, sender: Any, messages: list[ServiceBusMessage]) -> None:
        if len(messages) == 1:
            sender.send_messages(messages[0])
        elif len(messages) < BATCH_SIZE:
            sender.send_messages(messages)
        else:
            batch = sender.create_message_batch()
            for message in messages:
                batch.add_message(message)
            sender.send_messages(batch)

    def _record(self, kind: str, messages: list[ServiceBusMessage], **values: Any) -> None:
        ids = [message.message_id for message in messages]
        self._log.write(kind, path=self._path, ids=ids, session=self._session, **values)


def pair(
    config: SenderConfig, log: SenderLogWriter, stop: threading.Event
) -> tuple[Any, list[Any]] | None:
    """Return a paired client and its two SDK clients, or None if the process was stopped first."""

    def on_event(event: Event) -> None:
        if isinstance(event, StateChanged):
            log.write("state", path=event.path, state=event.to_state.value)
        else:
            log.write(type(event).__name__)

    while not stop.is_set():
        clients = [
            ServiceBusClient.from_connection_string(text, **SDK_OPTIONS)
            for text in (config.primary, config.secondary)
        ]
        options = SendAvailabilityOptions(
            secondary=clients[1],
            primary_name=config.name,
            backlog_queue_count=config.backlog_queues,
            failover_interval=timedelta(seconds=config.failover_interval_s),
            ping_primary_interval=timedelta(seconds=1),
            failback=config.failback,  # type: ignore[arg-type]
            failback_hold=timedelta(seconds=2),
            operation_timeout=timedelta(seconds=4),
            backlog_cool_down=timedelta(seconds=1),
            check_duplicate_detection=False,
            console=config.console,
            console_token=config.console_token,
            on_event=on_event,
        )
        try:
            return pair_namespace(clients[0], options), clients
        except EXPECTED_ERRORS as exc:
            log.write("failed", error=f"pairing: {type(exc).__name__}")
            for client in clients:
                client.close()
            stop.wait(RETRY_DELAY_S)
    return None


def main() -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C ends the parent process, which then ends this process
    config = SenderConfig.from_json(sys.stdin.readline())
    log, stop = SenderLogWriter(Path(config.log)), threading.Event()

    def wait_for_end_of_input() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
    if (paired := pair(config, log, stop)) is None:
        return
    paired_client, clients = paired
    log.write("paired")
    senders = [SenderThread(config, paired_client, number, stop) for number in range(SENDERS)]
    for sender in senders:
        sender.thread.start()
    for sender in senders:
        sender.thread.join()
    paired_client.close()
    for client in clients:
        client.close()
    log.write("closed")


if __name__ == "__main__":
    main()
