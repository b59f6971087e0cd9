"""Notices that the application closes a client of the SDK that a pairing uses.

A client of the SDK has no closed state: its `close` closes all of its senders and receivers, those
of a pairing included, and afterwards it works again. So `close` is replaced on the instance. The
`with` block of a client calls `close` of the instance, too.
"""

import os
from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any
from weakref import WeakMethod

import azure.servicebus.aio

from pairbus.pairing.sdk_clients import SdkClient

_HOOK = "pairbus_close_hook"
"""The attribute of a replaced `close` that holds its hook."""


class CloseHook:
    """Calls a bound method before each `close` of a client, until `remove`. For the async SDK the
    result of the method is awaited. The object of the method is not kept alive. Several pairings
    can use one client: each has its hook, and a later hook replaces the function of an earlier
    one."""

    def __init__(self, client: SdkClient, listener: Callable[[], Any]) -> None:
        self._client = client
        self._listener: WeakMethod[Callable[[], Any]] | None = WeakMethod(listener)
        with _lock:
            self.replaced: Any = vars(client).get("close")
            is_async = isinstance(client, azure.servicebus.aio.ServiceBusClient)
            close: Callable[[], Any] = client.close
            function = self._hook_async(close) if is_async else self._hook(close)
            vars(function)[_HOOK] = self
            vars(client)["close"] = function

    def remove(self) -> None:
        """Do not call the method any more, and restore `close`. If other code has replaced `close`
        in the meantime, that stays. Can be called repeatedly."""
        with _lock:
            self._listener = None
            attributes = vars(self._client)
            while (hook := _hook_of(attributes.get("close"))) is not None and not hook.is_active:
                if hook.replaced is None:
                    del attributes["close"]
                else:
                    attributes["close"] = hook.replaced

    @property
    def is_active(self) -> bool:
        """False if the hook was removed, or if the object of its method no longer exists."""
        return self._active_listener() is not None

    def _active_listener(self) -> Callable[[], Any] | None:
        return None if self._listener is None else self._listener()

    def _hook(self, close: Callable[[], None]) -> Callable[[], Any]:
        @wraps(close)
        def notify_and_close() -> None:
            try:
                if (listener := self._active_listener()) is not None:
                    listener()
            finally:
                close()

        return notify_and_close

    def _hook_async(self, close: Callable[[], Any]) -> Callable[[], Any]:
        @wraps(close)
        async def notify_and_close() -> None:
            try:
                if (listener := self._active_listener()) is not None:
                    await listener()
            finally:
                await close()

        return notify_and_close


def _hook_of(function: Any) -> CloseHook | None:
    hook: CloseHook | None = getattr(function, _HOOK, None)
    return hook


_lock = RLock()
"""Held while `close` of a client is replaced. Reentrant, because a signal handler may fork at any
moment."""

os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
