"""The file with the key that signs the tokens of the console."""

import os
from pathlib import Path
from secrets import token_bytes

from pairbus.console.tokens import KEY_BYTES, TokenSigner
from pairbus.errors import ConfigurationError


def load_signer(path: Path) -> TokenSigner:
    """Return the signer of a key file, which is created if it does not exist. Raises
    ConfigurationError if the file cannot be read, or if other users can read it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(path)
        if path.stat().st_mode & 0o077:
            raise ConfigurationError(
                f"{path} can be read by other users, so its key is not secret. Delete it to create "
                "a new key; all tokens become invalid."
            )
        return TokenSigner(path.read_bytes())
    except OSError as exc:
        raise ConfigurationError(f"The key file {path} cannot be used: {exc}.") from exc


def _create(path: Path) -> None:
    """Create the file unless it exists. It is complete or does not exist."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # another process was faster
    finally:
        draft.unlink()
