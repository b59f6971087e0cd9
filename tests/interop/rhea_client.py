"""rhea (npm) as a client."""

import itertools
from typing import Any

from pairbus.amqp.performatives import Accepted, Error, Modified, Open, Rejected, Released
from pairbus.amqp.sections import (
    DATA,
)
from pairbus.amqp.types import Symbol, UInt
from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    ConnectOptions,
    PeerClient,
    PeerError,
    PeerReceiver,
    PeerSender,
)
from tests.interop.rhea_messages import OUTCOME_EVENTS, encode, message_from_json, message_to_json
from tests.interop.rhea_process import (
    RheaProcess,
    connection_limits,
    error_to_json,
    from_json,
    state_to_json,
)

ERROR_EVENTS = {
    "sender_error": "link",
    "receiver_error": "link",
    "session_error": "session",
    "connection_error": "connection",
    "disconnected": "transport",
}


class RheaSender(PeerSender):
    def __init__(self, process: RheaProcess, name: str) -> None:
        self.process = process
        self.name = name

    def send(self, message: PeerMessage | bytes, *, message_format: int = 0) -> Any:
        number = self._send(message, message_format)
        return self._outcome(id=number)[0]

    def _outcome(self, **fields: Any) -> tuple[Any, bool]:
        event = self.process.next(*OUTCOME_EVENTS, link=self.name, **fields)
        if event["settled"]:  # rhea reports the settlement, too.
            self.process.next("settled", link=self.name, id=event["id"])
        return from_json(event["state"]), event["settled"]

    def _send(self, message: PeerMessage | bytes, message_format: int = 0) -> int:
        if isinstance(message, bytes):
            arguments: dict[str, Any] = {"payload": message.hex(), "format": message_format}
        else:
            arguments = {"message": message_to_json(message)}
        return self.process.do("send", link=self.name, **arguments)["id"]

    def send_batch(self, messages: list[PeerMessage]) -> Any:
        from pairbus.amqp.batch import BATCH_FORMAT

        members = [encode(self.process, message) for message in messages]
        batch = encode(self.process, PeerMessage(body=(DATA, members)))
        return self.send(batch, message_format=BATCH_FORMAT)

    def post(self, message: PeerMessage) -> None:
        self._send(message)

    def wait_for_outcomes(self, count: int) -> list[tuple[Any, bool]]:
        return [self._outcome() for _ in range(count)]

    def wait_for_new_connection(self) -> None:
        """Wait until the link has credit on a new connection."""
        self.process.wait_for_order("connection_open", "connection_open", "sendable")

    def confirm(self, count: int) -> None:
        """Settle the last messages that were sent, as a sender does in mode second."""
        for number in range(count):
            self.process.do("confirm", link=self.name, id=number)

    def close(self, error: Error | None = None) -> None:
        self.process.do("close_link", link=self.name, error=error_to_json(error))
        self.process.next("sender_close", link=self.name)

    def end_session(self, error: Error | None = None) -> None:
        self.process.do("end_session", link=self.name, error=error_to_json(error))
        self.process.next("session_close")


class RheaReceiver(PeerReceiver):
    def __init__(self, process: RheaProcess, name: str, second: bool) -> None:
        self.process = process
        self.name = name
        self.second = second
        self.granted = 0

    def receive(self, count: int = 1) -> list[PeerMessage]:
        # Messages that have arrived used their credit.
        self.grant(max(count - self.granted, 0))
        return self.take(count)

    def grant(self, credit: int) -> None:
        if credit:
            self.granted += credit
            self.process.do("credit", link=self.name, credit=credit)

    def take(self, count: int) -> list[PeerMessage]:
        messages = self.process.take("message", count, link=self.name)
        self.granted = max(self.granted - count, 0)
        return [message_from_json(event) for event in messages]

    def arrived(self) -> list[PeerMessage]:
        messages = self.process.take_all("message", link=self.name)
        self.granted = max(self.granted - len(messages), 0)
        return [message_from_json(event) for event in messages]

    def settle(self, message: PeerMessage, state: Any = None) -> None:
        number = message.handle["id"]
        outcome = state_to_json(state or Accepted())
        self.process.do("settle", link=self.name, id=number, **outcome)
        if self.second:
            self.process.next("settled", link=self.name, id=number)

    def drain(self) -> None:
        self.process.take_all("receiver_drained", link=self.name)
        self.process.do("drain", link=self.name)
        assert self.process.next("receiver_drained", link=self.name)["credit"] == 0
        self.granted = sum(1 for event in self.process.events if event["event"] == "message")

    def close(self, error: Error | None = None) -> None:
        self.process.do("close_link", link=self.name, error=error_to_json(error))
        self.process.next("receiver_close", link=self.name)

    def end_session(self, error: Error | None = None) -> None:
        self.process.do("end_session", link=self.name, error=error_to_json(error))
        self.process.next("session_close")


class RheaClient(PeerClient):
    """A client in a process of its own."""

    name = "rhea"
    heartbeats_s = 1.0
    outcomes = (
        Accepted(),
        Released(),
        Rejected(),
        Rejected(Error(Symbol("test:error"), "test error", {Symbol("detail"): "test"})),
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
        Modified(True, True, {Symbol("x-opt-why"): UInt(1)}),
    )

    def __init__(self, port: int, options: ConnectOptions) -> None:
        self.process = RheaProcess("rhea_client.js")
        self._names = map("link-{}".format, itertools.count())
        self._sessions: set[int] = set()
        self.process.do("connect", options=_native_options(port, options))

    def encode(self, message: PeerMessage) -> bytes:
        return encode(self.process, message)

    def members(self, batch: bytes) -> list[bytes]:
        """Return the data sections of a message, as rhea decodes them."""
        sections = self.process.do("decode", payload=batch.hex())["sections"]
        return [from_json(section) for section in sections[str(DATA)]]

    def remote_open(self) -> Open:
        return from_json(self.process.next("connection_open")["open"])

    def sender(self, address: str, *, settled: bool | None = None, session: int = 0) -> RheaSender:
        options: dict[str, Any] = {"target": address, "treat_modified_as_released": False}
        if settled is not None:
            options["snd_settle_mode"] = int(settled)
        name = self._attach("sender", options, session)
        self._wait(name, "sendable", "sender_error")
        return RheaSender(self.process, name)

    def sender_with_options(self, address: str, **options: Any) -> RheaSender:
        """Attach a link without waiting for credit."""
        name = self._attach("sender", {"target": address} | options, 0)
        return RheaSender(self.process, name)

    def receiver(
        self,
        address: str,
        *,
        settled: bool = False,
        second: bool = False,
        session: int = 0,
        accept: bool = False,
    ) -> RheaReceiver:
        options = {
            "source": address,
            "credit_window": 0,
            "autoaccept": accept,
            "snd_settle_mode": int(settled),
            "rcv_settle_mode": int(second),
        }
        name = self._attach("receiver", options, session)
        self._wait(name, "receiver_open", "receiver_error")
        if self.process.has("receiver_error", link=name):
            self._wait(name, "receiver_error", "receiver_error")
        return RheaReceiver(self.process, name, second)

    def _attach(self, kind: str, options: dict[str, Any], session: int) -> str:
        name = next(self._names)
        if session:
            if session not in self._sessions:
                self._sessions.add(session)
                self.process.do("begin", name=session)
            self.process.do(kind, name=name, session=session, options=options)
        else:
            self.process.do(kind, name=name, options=options)
        return name

    def _wait(self, name: str, opened: str, failed: str) -> None:
        event = self.process.next(opened, failed, link=name)
        if event["event"] == "receiver_open" and event["source"] is None:
            event = self.process.next(failed, link=name)
        if event["event"] == failed:
            raise PeerError("link", from_json(event["error"]))

    def next_error(self) -> PeerError:
        event = self.process.next(*ERROR_EVENTS)
        error = event.get("error")
        if error is not None:
            is_amqp = "t" in error
            error = (
                from_json(error)
                if is_amqp
                else Error(error.get("condition") or "", error["description"])
            )
        return PeerError(ERROR_EVENTS[event["event"]], error)

    def end_session(self, number: int, error: Error | None = None) -> None:
        self.process.do("end_named_session", name=number, error=error_to_json(error))
        self.process.next("session_close")

    def close_with_error(self, error: Error) -> None:
        self.process.do("close", error=error_to_json(error))
        self.process.next("connection_close")

    def freeze(self) -> None:
        self.process.freeze()
        assert self.process.frozen

    def thaw(self) -> None:
        self.process.thaw()

    def cut(self) -> None:
        self.process.do("cut")
        self.process.next("disconnected")

    def close(self) -> None:
        self.process.stop()


def _native_options(port: int, options: ConnectOptions) -> dict[str, Any]:
    native: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "username": options.user or "anonymous",
        "reconnect": options.reconnect,
        "all_errors_non_fatal": options.reconnect,
    }
    if options.password is not None:
        native["password"] = options.password
    if not options.sasl or options.certificate:
        native["username"] = None
    native |= connection_limits(options)
    if options.container_id is not None:
        native["container_id"] = options.container_id
    if options.hostname is not None:
        native["hostname"] = options.hostname
    if options.desired_capabilities:
        native["desired_capabilities"] = list(options.desired_capabilities)
    if options.properties is not None:
        native["properties"] = options.properties
    if options.tls is not None:
        native |= {"transport": "tls", "servername": "localhost"}
        if options.trusted:
            native["ca"] = str(options.tls.ca)
        if options.certificate:
            native |= {
                "cert": str(options.tls.client_certificate),
                "key": str(options.tls.client_key),
                "enable_sasl_external": True,
            }
    return native
