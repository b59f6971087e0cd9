"""The XML that the administration API needs: a strict parser, and functions that write elements.

The parser refuses document types, and so all kinds of entity expansion, and limits size and depth.
Elements are written as text, because the service gives each description a default namespace, which
ElementTree cannot write.
"""

import re
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from pairbus.errors import ConfigurationError

MAX_BODY = 1 << 20
MAX_DEPTH = 32


# Characters that XML 1.0 cannot contain, not even escaped.
_INVALID = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_xml(body: bytes) -> Element:
    """Return the root of a document. Raises ConfigurationError for anything but plain XML."""
    if len(body) > MAX_BODY:
        raise ConfigurationError(f"The body has {len(body)} bytes; the maximum is {MAX_BODY}.")
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ConfigurationError(f"The XML is nested more than {MAX_DEPTH} levels deep.")
        builder.start(
            _element_tree_name(tag),
            {_element_tree_name(name): value for name, value in attributes.items()},
        )

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_element_tree_name(tag))

    def refuse_document_type(*_: object) -> None:
        raise ConfigurationError("The XML has a document type, which is not supported.")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse_document_type
    try:
        parser.Parse(body, True)
    except ConfigurationError:
        raise
    except (expat.ExpatError, ValueError, LookupError) as exc:
        raise ConfigurationError(f"The body is not XML: {exc}") from exc
    return builder.close()


def _element_tree_name(expat_name: str) -> str:
    """Return `{namespace}name` for expat's `namespace}name`."""
    return "{" + expat_name if "}" in expat_name else expat_name


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def child(parent: Element, name: str) -> Element | None:
    """Return the first child with a name, in any namespace: clients use different namespaces."""
    return next((element for element in parent if local_name(element) == name), None)


def text_of(element: Element | None) -> str | None:
    """Return the text of an element, or None if the element is absent, nil or empty."""
    return None if element is None else element.text or None


def write_element(name: str, *content: str, **attributes: str) -> str:
    """Write an element with content that is XML. `xmlns_d2p1` is the attribute `xmlns:d2p1`."""
    written = "".join(
        [f" {key.replace('_', ':')}={_quote(value)}" for key, value in attributes.items()]
    )
    return f"<{name}{written}>{''.join(content)}</{name}>" if content else f"<{name}{written}/>"


def escape_text(value: str) -> str:
    """Return text as the content of an element.

    A character that XML cannot contain becomes U+FFFD, so that a single one does not make a whole
    list unreadable.
    """
    return escape(_INVALID.sub("\ufffd", value), {"\r": "&#13;"})


def _quote(value: str) -> str:
    whitespace = {"\r": "&#13;", "\n": "&#10;", "\t": "&#9;"}
    return quoteattr(_INVALID.sub("\ufffd", value), whitespace)
