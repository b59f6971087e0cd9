"""The composite types of AMQP 1.0: performatives, SASL frames, termini, delivery states, errors.

Field names are those of the specification (parts 2, 3 and 5) with underscores.
"""

from typing import Any

from pairbus.amqp.composite import U8, U16, U32, U64, Map, Sym, Symbols, composite
from pairbus.amqp.types import Symbol
from pairbus.errors import AmqpError

SENDER, RECEIVER = False, True
"""The roles of a link endpoint."""

SETTLE_UNSETTLED, SETTLE_SETTLED, SETTLE_MIXED = 0, 1, 2
"""Sender settle modes."""

SETTLE_FIRST, SETTLE_SECOND = 0, 1
"""Receiver settle modes."""


@composite(0x1D, "amqp:error:list", keep_trailing_nulls=True)
class Error:
    """An error. Trailing nulls are encoded because the Azure SDK expects all three fields."""

    condition: Sym
    description: str | None = None
    info: Map | None = None

    @classmethod
    def of(cls, exc: AmqpError) -> "Error":
        """Return the error to send for an exception."""
        # The Azure SDK needs an info map that is not empty, or it does not report a rejected
        # message. The keys of the map are symbols.
        info = exc.info or {"condition": exc.condition}
        symbolic = {Symbol(key) if type(key) is str else key: info[key] for key in info}
        return cls(exc.condition, exc.description, symbolic)

    def without_description(self) -> "Error":
        """Return the error with its condition only, for a peer whose frames are too small."""
        return Error(self.condition, None, {Symbol("condition"): self.condition})


@composite(0x10, "amqp:open:list")
class Open:
    container_id: str
    hostname: str | None = None
    max_frame_size: U32 = 0xFFFFFFFF
    channel_max: U16 = 0xFFFF
    idle_time_out: U32 | None = None
    outgoing_locales: Symbols = ()
    incoming_locales: Symbols = ()
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Map | None = None


@composite(0x11, "amqp:begin:list")
class Begin:
    remote_channel: U16 | None
    next_outgoing_id: U32
    incoming_window: U32
    outgoing_window: U32
    handle_max: U32 = 0xFFFFFFFF
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Map | None = None


@composite(0x28, "amqp:source:list")
class Source:
    address: Any = None
    durable: U32 = 0
    expiry_policy: Sym = "session-end"
    timeout: U32 = 0
    dynamic: bool = False
    dynamic_node_properties: Map | None = None
    distribution_mode: Sym | None = None
    filter: Map | None = None
    default_outcome: Any = None
    outcomes: Symbols = ()
    capabilities: Symbols = ()


@composite(0x29, "amqp:target:list")
class Target:
    address: Any = None
    durable: U32 = 0
    expiry_policy: Sym = "session-end"
    timeout: U32 = 0
    dynamic: bool = False
    dynamic_node_properties: Map | None = None
    capabilities: Symbols = ()


@composite(0x12, "amqp:attach:list")
class Attach:
    name: str
    handle: U32
    role: bool
    snd_settle_mode: U8 = SETTLE_MIXED
    rcv_settle_mode: U8 = SETTLE_FIRST
    source: Any = None
    target: Any = None
    unsettled: Map | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: U32 | None = None
    max_message_size: U64 | None = None
    offered_capabilities: Symbols = ()
    desired_capabilities: Symbols = ()
    properties: Map | None = None


@composite(0x13, "amqp:flow:list")
class Flow:
    next_incoming_id: U32 | None
    incoming_window: U32
    next_outgoing_id: U32
    outgoing_window: U32
    handle: U32 | None = None
    delivery_count: U32 | None = None
    link_credit: U32 | None = None
    available: U32 | None = None
    drain: bool = False
    echo: bool = False
    properties: Map | None = None


@composite(0x14, "amqp:transfer:list")
class Transfer:
    handle: U32
    delivery_id: U32 | None = None
    delivery_tag: bytes | None = None
    message_format: U32 | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: U8 | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@composite(0x15, "amqp:disposition:list")
class Disposition:
    role: bool
    first: U32
    last: U32 | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


@composite(0x16, "amqp:detach:list")
class Detach:
    handle: U32
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list")
class End:
    error: Error | None = None


@composite(0x18, "amqp:close:list")
class Close:
    error: Error | None = None


@composite(0x23, "amqp:received:list")
class Received:
    section_number: U32
    section_offset: U64


@composite(0x24, "amqp:accepted:list")
class Accepted:
    pass


@composite(0x25, "amqp:rejected:list")
class Rejected:
    error: Error | None = None


@composite(0x26, "amqp:released:list")
class Released:
    pass


@composite(0x27, "amqp:modified:list")
class Modified:
    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Map | None = None


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    sasl_server_mechanisms: Symbols


@composite(0x41, "amqp:sasl-init:list")
class SaslInit:
    mechanism: Sym
    initial_response: bytes | None = None
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list")
class SaslChallenge:
    challenge: bytes


@composite(0x43, "amqp:sasl-response:list")
class SaslResponse:
    response: bytes


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    code: U8
    additional_data: bytes | None = None
