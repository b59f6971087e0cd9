"""Stand-in for the async test helpers of the Azure SDK."""

from devtools_testutils import recorded_by_proxy as recorded_by_proxy_async

__all__ = ["recorded_by_proxy_async"]
