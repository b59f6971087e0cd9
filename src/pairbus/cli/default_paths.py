"""Default paths of files that commands write."""

import os
from pathlib import Path


def ledger_folder() -> Path:
    """Return `$XDG_STATE_HOME/pairbus/ledger`, or a folder in `~/.local/state` if the variable is
    not set."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "pairbus" / "ledger"


def redrive_folder() -> Path:
    """Return `$XDG_STATE_HOME/pairbus/redrive`, where redrives keep their plans until they are
    finished."""
    return ledger_folder().with_name("redrive")
