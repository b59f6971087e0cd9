"""The operation that checks an entity of the primary for duplicate detection.

Without duplicate detection, a message whose acknowledgement is lost may be delivered twice: once by
the primary, and once from the backlog.
"""

import logging
from collections.abc import Callable
from typing import Any

from azure.core.exceptions import ResourceNotFoundError

from pairbus.pairing.effects import CloseObject, Operation, SendRequest

logger = logging.getLogger("pairbus.pairing")

_REQUEST_TIMEOUT_S = 10.0


def check_duplicate_detection(open_administration: Callable[[], Any], path: str) -> Operation[None]:
    """Log a warning if an entity has no duplicate detection. Errors are logged for debugging only:
    the credential may lack the Manage right."""
    try:
        properties = yield from _get_properties(open_administration, path)
    except Exception as exc:  # noqa: BLE001  the check is only a hint
        logger.debug("%s: could not check for duplicate detection: %s", path, exc)
        return
    if not properties.requires_duplicate_detection:
        logger.warning(
            "%s has no duplicate detection. A message whose acknowledgement is lost when the "
            "primary goes down may be delivered twice, with the same message id",
            path,
        )


def _get_properties(open_administration: Callable[[], Any], path: str) -> Operation[Any]:
    administration = open_administration()
    try:
        try:
            return (yield SendRequest(lambda: administration.get_queue(path), _REQUEST_TIMEOUT_S))
        except (ResourceNotFoundError, AttributeError):  # raised for a topic
            return (yield SendRequest(lambda: administration.get_topic(path), _REQUEST_TIMEOUT_S))
    finally:
        yield CloseObject(administration)
