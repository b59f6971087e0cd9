"""The key of a namespace's root rule, which is kept next to its data."""

import json
import secrets
from base64 import b64encode
from pathlib import Path


def load_key(file: Path, rule: str) -> str:
    """Return the key of a rule, created at the first start."""
    if file.exists():
        return str(json.loads(file.read_text())[rule])
    key = b64encode(secrets.token_bytes(32)).decode()
    file.touch(mode=0o600)
    file.write_text(json.dumps({rule: key}))
    return key
