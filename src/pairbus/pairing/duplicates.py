"""The operation that checks an entity of the primary for duplicate detection.

Without duplicate detection, a message whose acknowledgement is lost may be delivered twice: once by
the primary, and once from the backlog.
"""

import logging
from collections.abc import Callable

from pairbus.errors import EntityNotFound, NotAuthorized, Refused
from pairbus.pairing.effects import Operation, RunBlocking
from pairbus.servicebus.administration import AdministrationClient

logger = logging.getLogger("pairbus.pairing")


def check_duplicate_detection(
    open_administration: Callable[[], AdministrationClient], path: str
) -> Operation[None]:
    """Log a warning if an entity has no duplicate detection. Errors are logged for debugging only:
    the credential may lack the Manage right."""

    def is_enabled() -> bool:
        with open_administration() as administration:
            try:
                return administration.get_queue(path).requires_duplicate_detection
            except (EntityNotFound, NotAuthorized):
                raise
            except Refused:  # the path is that of a topic
                return administration.get_topic(path).requires_duplicate_detection

    try:
        enabled = yield RunBlocking(is_enabled)
    except Exception as exc:  # noqa: BLE001  the check is only a hint
        logger.debug("%s: could not check for duplicate detection: %s", path, exc)
        return
    if not enabled:
        logger.warning(
            "%s has no duplicate detection. A message whose acknowledgement is lost when the "
            "primary goes down may be delivered twice, with the same message id",
            path,
        )
