"""Where commands keep things that nobody gave a place."""

import os
from pathlib import Path


def ledger_folder() -> Path:
    """`$XDG_STATE_HOME/pairbus/ledger`; without that variable, below `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "pairbus" / "ledger"
