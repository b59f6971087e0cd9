"""rhea (npm) as a server with queues in memory."""

from typing import Any

from pairbus.amqp.performatives import Error
from pairbus.amqp.sections import (
    DATA,
)
from tests.interop.messages import PeerMessage
from tests.interop.peers import (
    PeerError,
    PeerServer,
    ServerOptions,
)
from tests.interop.rhea_messages import OUTCOME_EVENTS, encode, message_from_json, message_to_json
from tests.interop.rhea_process import (
    RheaProcess,
    connection_limits,
    error_to_json,
    from_json,
    state_to_json,
)


class RheaServer(PeerServer):
    """A server in a process of its own."""

    name = "rhea"

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.process = RheaProcess("rhea_server.js")
        native: dict[str, Any] = {"port": options.port}
        receiver_options: dict[str, Any] = {"autoaccept": False, "credit_window": options.credit}
        if options.max_message_size is not None:
            receiver_options["max_message_size"] = options.max_message_size
        native["receiver_options"] = receiver_options
        native |= connection_limits(options)
        if options.tls is not None:
            native |= {
                "transport": "tls",
                "cert": str(options.tls.certificate),
                "key": str(options.tls.key),
            }
            if options.request_certificate:
                native |= {
                    "ca": str(options.tls.ca),
                    "requestCert": True,
                    "rejectUnauthorized": True,
                    "enable_sasl_external": True,
                }
        anonymous = options.users is None and not options.request_certificate
        answer = self.process.do("listen", options=native, users=options.users, anonymous=anonymous)
        self.port = answer["port"]

    def put(self, address: str, *messages: PeerMessage) -> None:
        for message in messages:
            self.process.do("put", address=address, message=message_to_json(message))

    def put_payload(self, address: str, payload: bytes, message_format: int) -> None:
        self.process.do("put", address=address, payload=payload.hex(), format=message_format)

    def encode(self, message: PeerMessage) -> bytes:
        return encode(self.process, message)

    def members(self, batch: bytes) -> list[bytes]:
        sections = self.process.do("decode", payload=batch.hex())["sections"]
        return [from_json(section) for section in sections[str(DATA)]]

    def receive(self, count: int) -> list[PeerMessage]:
        return [message_from_json(event) for event in self.process.take("message", count)]

    def outcomes(self, count: int) -> list[tuple[Any, bool]]:
        events = [self.process.next(*OUTCOME_EVENTS) for _ in range(count)]
        return [(from_json(event["state"]), event["settled"]) for event in events]

    def next_error(self) -> PeerError:
        event = self.process.next("connection_error")
        return PeerError("connection", from_json(event["error"]))

    def rule(self, address: str, **rule: Any) -> None:
        """Set the rule of an address (see rhea_server.js)."""
        self.process.do("rule", address=address, rule=rule)

    def refuse(self, address: str, error: Error) -> None:
        self.rule(address, refuse=error_to_json(error))

    def settle_with(self, address: str, state: Any) -> None:
        self.rule(address, **({} if state is None else {"state": state_to_json(state)}))

    def fail_settlements(self, error: Error) -> None:
        self.process.do("fail_settlement", error=error_to_json(error))

    def cut_on_message(self, address: str, enabled: bool = True) -> None:
        self.rule(address, cut=enabled)

    def cut(self) -> None:
        self.process.do("cut")

    def grant(self, address: str, credit: int) -> None:
        self.process.do("grant", address=address, credit=credit)

    def drain_sender(self, address: str) -> None:
        self.process.do("drain_sender", address=address)

    def credit_of(self, address: str) -> int:
        return self.process.do("credit_of", address=address)["credit"]

    def settle(self, message: PeerMessage, state: Any) -> None:
        event = message.handle
        self.process.do("settle", link=event["link"], id=event["id"], **state_to_json(state))

    def close_link(self, address: str, error: Error | None) -> None:
        self.process.do("close_link_of", address=address, error=error_to_json(error))

    def end_session(self, address: str, error: Error | None) -> None:
        self.process.do("end_session_of", address=address, error=error_to_json(error))

    def close_connections(self, error: Error | None) -> None:
        self.process.do("close", error=error_to_json(error))

    def freeze(self) -> None:
        self.process.freeze()
        assert self.process.frozen

    def thaw(self) -> None:
        self.process.thaw()

    def settle_modes(self, address: str) -> tuple[int, int]:
        event = self.process.next("sender_open", source=address)
        return event["snd_settle_mode"] or 0, event["rcv_settle_mode"] or 0

    @property
    def users(self) -> list[str | None]:
        events = [event for event in self.process.events if event["event"] == "connection_open"]
        return [event.get("certificate") or event.get("user") for event in events]

    @property
    def frames_in(self) -> int:
        return self.process.do("counts")["frames_in"]

    @property
    def frames_out(self) -> int:
        return self.process.do("counts")["frames_out"]

    @property
    def link_count(self) -> int:
        return self.process.do("link_count")["count"]

    def close(self) -> None:
        self.process.stop()
