"""Stand-in for the loader of a prepared namespace, for the tests of the administration client."""

from typing import Any

from tests.sdk_suite import state
from tests.sdk_suite.preparers import Preparer


class ServiceBusPreparer(Preparer):
    """Passes the namespace for administration."""

    names = (
        "servicebus_connection_str",
        "servicebus_fully_qualified_namespace",
        "servicebus_sas_policy",
        "servicebus_sas_key",
    )

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        namespace = state.running().administration
        values = (
            namespace.connection_string(),
            namespace.host,
            namespace.key_name,
            namespace.key,
        )
        return dict(zip(self.names, values, strict=True))
