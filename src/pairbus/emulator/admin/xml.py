"""XML in and out, as little as the management API needs.

Reading refuses document types, and so every kind of entity expansion, and bounds size and depth.
Writing puts text together: the service gives each description a default namespace of its own,
which ElementTree's writer cannot.
"""

import re
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from pairbus.errors import ConfigurationError

MAX_BODY = 1 << 20
MAX_DEPTH = 32


# What XML 1.0 cannot hold, however it is written.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_xml(body: bytes) -> Element:
    """The root of a document. Raises ConfigurationError for anything that is not plain XML."""
    if len(body) > MAX_BODY:
        raise ConfigurationError(f"the body has {len(body)} bytes, and at most {MAX_BODY} are read")
    builder = TreeBuilder()
    depth = 0

    def start(element: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"the XML is nested more than {MAX_DEPTH} deep")
        builder.start(_universal(element), {_universal(k): v for k, v in attributes.items()})

    def end(element: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_universal(element))

    def refuse(*_: object) -> None:
        raise ConfigurationError("the XML has a document type, which is not read")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(body, True)
    except ConfigurationError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as exc:
        raise ConfigurationError(f"the body is not XML: {exc}") from exc
    return builder.close()


def _universal(name: str) -> str:
    return "{" + name if "}" in name else name


def local_name(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def child(parent: Element, name: str) -> Element | None:
    """The first child of a name, in any namespace: clients spell them in several ways."""
    return next((found for found in parent if local_name(found) == name), None)


def text_of(element: Element | None) -> str | None:
    """The text of an element, or None where it is absent, nil or empty."""
    return None if element is None else element.text or None


def element(name: str, *inside: str, **attributes: str) -> str:
    """An element around what is already written. `xmlns_d2p1` is the attribute `xmlns:d2p1`."""
    given = "".join([f" {key.replace('_', ':')}={_quoted(v)}" for key, v in attributes.items()])
    return f"<{name}{given}>{''.join(inside)}</{name}>" if inside else f"<{name}{given}/>"


def escape_text(value: str) -> str:
    """Text for the inside of an element. What XML cannot hold becomes U+FFFD, so that one odd
    character in a name does not make a whole list unreadable."""
    return escape(_UNWRITABLE.sub("\ufffd", value), {"\r": "&#13;"})


def _quoted(value: str) -> str:
    spaces = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
    return quoteattr(_UNWRITABLE.sub("\ufffd", value), spaces)
