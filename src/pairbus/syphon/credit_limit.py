"""Asks the namespace of the backlog for its tier, and starts the rate below the credits of it.

Without an answer, for which the Manage right is needed, the first messages are received at full
speed until the namespace throttles, and live clients lose the rest of that second.
"""

import threading

from pairbus.amqp.client import ClientOptions
from pairbus.errors import PairbusError
from pairbus.servicebus.administration import AdministrationClient
from pairbus.spark.usage import UsageRecorder

TIMEOUT_S = 5.0
WITHOUT_CREDITS = "Premium"
"""The tier whose throughput does not consist of credits."""


class CreditLimit:
    """Finds out in a thread of its own whether a namespace has credits."""

    def __init__(self, options: ClientOptions, usage: UsageRecorder) -> None:
        self._options = options
        self._usage = usage
        self._applies = False
        self._thread = threading.Thread(target=self._ask, name="tier", daemon=True)
        self._thread.start()

    def applies(self) -> bool:
        """Return True if the namespace has said that it has credits. It waits for the answer."""
        self._thread.join(TIMEOUT_S)
        return self._applies

    def _ask(self) -> None:
        try:
            with AdministrationClient(
                self._options.administration(timeout_s=TIMEOUT_S),
                on_request=self._usage.add_request,
            ) as administration:
                self._applies = administration.get_sku() != WITHOUT_CREDITS
        except PairbusError:
            return
        finally:
            self._usage.flush()
