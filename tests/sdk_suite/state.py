"""The namespaces of this worker process, for the stand-ins."""

from tests.sdk_suite.namespaces import Namespaces

namespaces: Namespaces | None = None


def running() -> Namespaces:
    assert namespaces is not None, "The plugin starts the namespaces."
    return namespaces
