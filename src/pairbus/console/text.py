"""Text of other programs: names, errors and message fields are untrusted. No I/O."""

import unicodedata

MAX_CHARACTERS = 300
"""Characters of a name or an error. The path of an entity has at most 260."""


def shorten(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return at most `limit` characters, and the number of those that are left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def label(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return a name for JSON: control characters are kept, because the page sends the name back to
    act on it. The page makes them visible."""
    return shorten(text, limit).encode("utf-8", "replace").decode("utf-8")


def clean(text: str, limit: int = MAX_CHARACTERS) -> str:
    """Return text in one line, without control characters and without characters that change the
    direction of the text around them. At most `limit` characters of the text are kept."""
    visible = "".join(map(_visible, text[:limit]))
    if len(text) <= limit:
        return visible
    return f"{visible}… ({len(text) - limit:,} more characters)"


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    # Marks of direction are needed in names in Arabic and Hebrew; overrides and isolates are not.
    return character if character in "\u200e\u200f\u200c\u200d" else _escape(character)


def _escape(character: str) -> str:
    if unicodedata.category(character) == "Zs":
        return " "
    return f"⟨U+{ord(character):04X}⟩"  # as the page writes it
