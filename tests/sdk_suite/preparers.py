"""The decorators by which the SDK's tests get their resources, as keyword arguments."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any


class Preparer:
    """A decorator of a test. It creates a resource, and removes it after the test.

    A cached resource is created once for all tests of the process with the same `settings`.
    """

    names: tuple[str, ...] = ()
    """The arguments of the test that the preparer passes."""

    def __init__(self, *_: Any, use_cache: bool = False, **settings: Any) -> None:
        self._use_cache = use_cache
        self.settings = settings

    def create(self, resources: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for the test. `resources` are those of the outer decorators."""
        return {}

    def remove(self, resources: dict[str, Any]) -> None:
        """Remove what `create` returned."""

    def __call__(self, test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def prepared(self_of_test: Any, **arguments: Any) -> None:
                with self._created(arguments) as resources:
                    await test(self_of_test, **_accepted(test, arguments | resources))

        else:

            @functools.wraps(test)
            def prepared(self_of_test: Any, **arguments: Any) -> None:
                with self._created(arguments) as resources:
                    test(self_of_test, **_accepted(test, arguments | resources))

        # pytest takes the other parameters for fixtures.
        signature = inspect.signature(test)
        kept = [item for name, item in signature.parameters.items() if name not in self.names]
        prepared.__signature__ = signature.replace(parameters=kept)
        prepared.prepared = True
        return prepared

    @contextlib.contextmanager
    def _created(self, resources: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self._use_cache:
            key = (type(self), repr(sorted(self.settings.items())))
            if key not in _cache:
                _cache[key] = self.create(resources)
            yield _cache[key]
            return
        created = self.create(resources)
        try:
            yield created
        finally:
            self.remove(resources | created)


_cache: dict[Any, dict[str, Any]] = {}


def _accepted(test: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a test takes. A prepared test takes all."""
    parameters = inspect.signature(test).parameters
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    if takes_all or hasattr(test, "prepared"):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}
