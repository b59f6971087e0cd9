"""Default paths of files that commands write."""

import os
from pathlib import Path
from urllib.parse import quote

from pairbus.errors import ConfigurationError


def ledger_folder() -> Path:
    """Return `$XDG_STATE_HOME/pairbus/ledger`, or a folder in `~/.local/state` if the variable is
    not set."""
    return _state_folder() / "ledger"


def control_file(primary_name: str) -> Path:
    """Return the control file of the syphon for a primary, beside the folder of the ledger."""
    return _state_folder() / "control" / f"{quote(primary_name, safe='')}.json"


def chosen_ledger(folder: Path | None, *, no_ledger: bool) -> Path | None:
    """Return the folder of the ledger for the options --ledger and --no-ledger; None: no ledger.
    Raises ConfigurationError."""
    if not no_ledger:
        return folder or ledger_folder()
    if folder is not None:
        raise ConfigurationError("Use --ledger or --no-ledger, not both.")
    return None


def _state_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "pairbus"


def redrive_folder() -> Path:
    """Return `$XDG_STATE_HOME/pairbus/redrive`, where redrives keep their plans until they are
    finished."""
    return _state_folder() / "redrive"


def console_folder() -> Path:
    """Return `$XDG_STATE_HOME/pairbus/console`, where the console keeps its key, history, sessions
    and audit log."""
    return _state_folder() / "console"
