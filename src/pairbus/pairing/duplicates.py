"""Whether entities of the primary remove duplicates. One that does not may get a message twice
after an answer was lost; whoever reads the log should know."""

import logging
from typing import Any

logger = logging.getLogger("pairbus.pairing")


def tell(path: str, properties: Any) -> None:
    """Warn of an entity without duplicate detection."""
    if not properties.requires_duplicate_detection:
        logger.warning(
            "%s has no duplicate detection: a message whose answer is lost when the primary goes "
            "down may arrive twice, with one message id",
            path,
        )


def could_not(path: str, error: BaseException) -> None:
    """It is not known, and need not be: the right to manage may be missing."""
    logger.debug("%s: whether it removes duplicates is not known: %s", path, error)
