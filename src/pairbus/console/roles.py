"""Roles of the console, and the access that a route needs. No I/O."""

from enum import StrEnum


class ConsoleRole(StrEnum):
    """The role of a token or a session."""

    SENDER = "sender"
    """May report the state of a sender, and nothing else."""
    VIEWER = "viewer"
    """May read."""
    OPERATOR = "operator"
    """May read, act and report."""


class Access(StrEnum):
    """The access that a route declares."""

    PUBLIC = "public"
    """Everyone. Such a route returns no data of the pairing."""
    READ = "read"
    """Viewers and operators."""
    ACT = "act"
    """Operators."""
    REPORT = "report"
    """Senders and operators."""

    def allows(self, role: ConsoleRole | None) -> bool:
        """Return True if a role has this access. None: not authenticated."""
        return self is Access.PUBLIC or role in _ROLES[self]


_ROLES = {
    Access.READ: (ConsoleRole.VIEWER, ConsoleRole.OPERATOR),
    Access.ACT: (ConsoleRole.OPERATOR,),
    Access.REPORT: (ConsoleRole.SENDER, ConsoleRole.OPERATOR),
}
