"""The limitations of AMQP peers, and the tests that they exclude.

A test that needs a capability declares it with `needs`, and runs with the peers that have it.
"""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SDK_HAS_NO_ACCESS = "the SDK gives no access to it"
SDK_TYPES = "the SDK cannot read it"

CANNOT: dict[str, dict[str, str]] = {
    # Capabilities of clients.
    "payload access": {
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "message format": {
        "proton": "Proton can neither set nor read the message format of a transfer.",
    },
    "batch members": {
        "proton": "Proton's Message keeps only the last of several data sections.",
        "sdk": "The SDK does not split batches.",
        "sdk-aio": "The SDK does not split batches.",
    },
    "footer": {
        "proton": "Proton's Message has no footer.",
        "rhea": "rhea encodes the footer before the body (see test_footer_before_the_body).",
    },
    "reads the footer": {"proton": "Proton's Message has no footer."},
    "footer before the body": {
        "proton": "Proton's Message has no footer.",
        "sdk": "The SDK encodes the footer after the body.",
        "sdk-aio": "The SDK encodes the footer after the body.",
    },
    "small receive window": {
        "sdk": "The SDK's window cannot be configured.",
        "sdk-aio": "The SDK's window cannot be configured.",
    },
    "renews its window within a message": {
        "rhea": "rhea renews its window after complete messages only.",
        "sdk": "The SDK's window cannot be configured.",
        "sdk-aio": "The SDK's window cannot be configured.",
    },
    "several sessions": {
        "sdk": "The SDK uses a connection for each link.",
        "sdk-aio": "The SDK uses a connection for each link.",
    },
    "abort": {
        "rhea": "rhea sends whole messages only.",
        "sdk": "The SDK sends whole messages only.",
        "sdk-aio": "The SDK sends whole messages only.",
    },
    "send without waiting": {
        "sdk": "The SDK waits for the outcome of each message.",
        "sdk-aio": "The SDK waits for the outcome of each message.",
    },
    "obeys credit": {
        "sdk": "The SDK sends without credit (see test_sdk_sends_without_credit).",
        "sdk-aio": "The SDK sends without credit (see test_sdk_sends_without_credit).",
    },
    "ignores credit": {
        "proton": "Proton obeys credit.",
        "rhea": "rhea obeys credit.",
    },
    "flow control": {
        "sdk": "The SDK grants and drains credit by itself.",
        "sdk-aio": "The SDK grants and drains credit by itself.",
    },
    "presettled send": {
        "sdk": "The SDK sends unsettled messages only.",
        "sdk-aio": "The SDK sends unsettled messages only.",
    },
    "settle mode first": {
        "sdk": "The SDK always requests settle mode second.",
        "sdk-aio": "The SDK always requests settle mode second.",
    },
    "reports outcomes": {
        "sdk": "A send of the SDK hangs for the outcomes released and modified.",
        "sdk-aio": "A send of the SDK hangs for the outcomes released and modified.",
    },
    "confirms settlement": {
        "proton": "Proton's handlers do not report the error of a confirmation.",
        "rhea": "rhea reports the state of a confirmation, but not as a failure.",
    },
    "sender settles second": {
        "proton": "Proton's client settles by itself when an outcome arrives.",
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "reports errors of endpoints": {
        "sdk": "The SDK reconnects after such errors, or reports its own.",
        "sdk-aio": "The SDK reconnects after such errors, or reports its own.",
    },
    "ends with an error": {
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "detach without closing": {
        "rhea": "rhea always closes links.",
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "connection fields": {
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "link fields": {
        "rhea": "Proton covers this; rhea has no options for all of the fields.",
        "sdk": SDK_HAS_NO_ACCESS,
        "sdk-aio": SDK_HAS_NO_ACCESS,
    },
    "own idle timeout": {
        "sdk": "The SDK announces no idle timeout that can be set through its clients.",
        "sdk-aio": "The SDK announces no idle timeout that can be set through its clients.",
    },
    "freeze": {
        "sdk": "The SDK runs in the process of the test.",
        "sdk-aio": "The SDK runs in the process of the test.",
    },
    "reconnects after a close": {
        "proton": "Proton reconnects after the loss of the transport only.",
    },
    "resends by itself": {
        "proton": "Proton leaves unsettled messages to the application.",
        "rhea": "rhea leaves unsettled messages to the application.",
    },
    "no SASL": {
        "sdk": "The SDK always uses SASL.",
        "sdk-aio": "The SDK always uses SASL.",
    },
    "SASL PLAIN": {
        "sdk": "The SDK supports ANONYMOUS and EXTERNAL only.",
        "sdk-aio": "The SDK supports ANONYMOUS and EXTERNAL only.",
    },
    "UTF-8 passwords": {
        "rhea": "rhea allocates one byte for each character of the password.",
        "sdk": "The SDK supports ANONYMOUS and EXTERNAL only.",
        "sdk-aio": "The SDK supports ANONYMOUS and EXTERNAL only.",
    },
    "Service Bus": {
        "proton": "Proton is a client for AMQP, not for Service Bus.",
        "rhea": "rhea is a client for AMQP, not for Service Bus.",
    },
    "client certificate": {
        "sdk": "The SDK has no option for a client certificate.",
        "sdk-aio": "The SDK has no option for a client certificate.",
    },
    # Capabilities of servers.
    "server: message format": {
        "proton": "Proton can neither set nor read the message format of a transfer.",
    },
    "server: reports aborts": {"rhea": "rhea does not report aborted deliveries."},
    "server: holds messages": {"proton": "This server settles each message when it arrives."},
    "server: settles second": {"proton": "This server settles each message when it arrives."},
    "server: drains senders": {
        "proton": "Proton's flow for a drain adds credit, so that the credit cannot become 0.",
    },
    "server: responds to requests": {"rhea": "The script has no request-response nodes."},
    "server: refuses connections": {"rhea": "rhea opens a connection before the script runs."},
    "server: detaches without closing": {"rhea": "rhea always closes links."},
    "server: attaches without terminus": {
        "proton": "This server copies the termini of the attach.",
    },
    "server: works without SASL": {"proton": "This server requires authentication."},
    "server: SASL PLAIN": {
        "proton": "Without Cyrus SASL, proton offers ANONYMOUS and EXTERNAL only.",
    },
    "server: own process": {"proton": "Proton runs in the process of the test."},
    "server: reports fields": {"rhea": "The script reports few fields of open and attach."},
}
"""The limitations of peers, by capability and peer, with the reason.

A test does not run with a peer that lacks a capability. Capabilities of a peer are not listed."""

_NO_SUCH_TYPE = "The SDK does not support the type."
_CHARS = ("char 97", "char 382", "char 8364", "char 119070", "array of char")
_DECIMALS = ("decimal32", "decimal64", "array of decimal32", "array of decimal64")
_EQUAL_KEYS = "map with keys that are equal in Python"
_PYTHON_MAP = "It holds maps in dicts."

CANNOT_WRITE: dict[str, dict[str, str]] = {
    "proton": {
        _EQUAL_KEYS: _PYTHON_MAP,
        "several data sections": "Proton's Message has one body section.",
    },
    "rhea": {
        "described twice": "rhea has one descriptor for each value.",
        "array of arrays": "rhea cannot encode arrays as elements.",
    },
    "sdk": {
        **dict.fromkeys((*_CHARS, *_DECIMALS), _NO_SUCH_TYPE),
        _EQUAL_KEYS: _PYTHON_MAP,
        "message id ulong": _NO_SUCH_TYPE,
        "map": "The SDK encodes all keys as int or string.",
        "array of boolean": "The SDK encodes the elements without the constructor 0x56.",
        "array of both booleans": "The SDK encodes the elements without the constructor 0x56.",
        "array of small uint": "The SDK encodes zeros without bytes.",
        "array of null": "The SDK encodes nulls with bytes.",
        "array of decimal128": "The adapter has one decimal only.",
        "empty array": "The SDK encodes an empty array without a constructor.",
        "described array": "The SDK drops the descriptor of an array.",
    },
}
"""Values and bodies that a peer cannot encode, with the reason."""

CANNOT_READ: dict[str, dict[str, str]] = {
    "proton": {
        _EQUAL_KEYS: _PYTHON_MAP,
        "several data sections": "Proton's Message keeps only the last of several data sections.",
        "described twice": "Proton 0.40 loses the values after it.",
    },
    "rhea": {"described twice": "rhea has one descriptor for each value."},
    "sdk": {
        **dict.fromkeys((*_CHARS, *_DECIMALS), _NO_SUCH_TYPE),
        _EQUAL_KEYS: _PYTHON_MAP,
        "decimal128": "The SDK misreads the exponent.",
        "array of decimal128": "The SDK misreads the exponent.",
        "message id binary": "The SDK returns strings as bytes, too.",
        "empty array": "The SDK expects an empty array without a constructor.",
        "described by a symbol": "The SDK drops descriptors.",
        "described by a ulong": "The SDK drops descriptors.",
        "described in a described list": "The SDK drops descriptors.",
        "described twice": "The SDK drops descriptors.",
        "described array": "The SDK drops descriptors.",
    },
}
"""Values and bodies that a peer cannot decode, with the reason."""

CANNOT_WRITE["sdk-aio"] = CANNOT_WRITE["sdk"]
CANNOT_READ["sdk-aio"] = CANNOT_READ["sdk"]


def needs(*capabilities: str) -> Callable[[T], T]:
    """Declare the capabilities that a test needs. It runs with the peers that have all of them."""

    def declare(test: T) -> T:
        for capability in capabilities:
            assert capability in CANNOT, f"{capability!r} is not in the table of capabilities"
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return declare


def peers_with(peers: list[str], capabilities: tuple[str, ...]) -> list[str]:
    return [peer for peer in peers if not any(peer in CANNOT[name] for name in capabilities)]


def summary() -> list[str]:
    """Return lines with peers, what is not tested with them, and the reason."""
    tables = list(CANNOT.items())
    for verb, table in (("write", CANNOT_WRITE), ("read", CANNOT_READ)):
        for peer, values in table.items():
            tables += [(f"{verb} {name}", {peer: reason}) for name, reason in values.items()]
    peers: dict[tuple[str, str], list[str]] = {}
    for subject, reasons in tables:
        for peer, reason in reasons.items():
            peers.setdefault((subject, reason), []).append(peer)
    return sorted(
        f"{', '.join(names)}: {subject}: {reason}" for (subject, reason), names in peers.items()
    )
