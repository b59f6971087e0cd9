"""Notifies the objects of a process in each child that is forked from it.

A child shares the connections of its parent and has none of its threads, and a lock that another
thread held at the moment of the fork is never released in the child. So a pairing works only in the
process that made it, and every call in a child must fail before it uses a lock or a connection.
Nothing is checked while there is no fork: the operating system's child runs the listeners first.
"""

import os
from typing import Protocol
from weakref import WeakSet


class ForkListener(Protocol):
    """An object that is notified in a child process."""

    def after_fork_in_child(self) -> None:
        """Prepare the child's copy of this object. Called in the only thread of the child, before
        any other code; must neither wait nor use a connection."""


_listeners: WeakSet[ForkListener] = WeakSet()


def notify_after_fork(listener: ForkListener) -> None:
    """Notify an object in child processes, for as long as the object exists."""
    _listeners.add(listener)


def _after_fork_in_child() -> None:
    errors = []
    for listener in list(_listeners):
        try:
            listener.after_fork_in_child()
        except Exception as exc:  # noqa: BLE001  the others must be notified all the same
            errors.append(exc)
    if errors:
        raise ExceptionGroup("pairbus failed after a fork", errors)  # Python prints it


os.register_at_fork(after_in_child=_after_fork_in_child)
