"""Names of errors, for attributes of metrics and spans."""

MAX_TEXT = 300
"""The most characters of the text of an error."""


def error_type(error: BaseException) -> str:
    """Return the value of `error.type`: the full name of the class."""
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def error_text(error: BaseException) -> str:
    """Return the text of an error, shortened."""
    text = str(error)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
