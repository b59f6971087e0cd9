"""The root rule of a namespace, and its key in the folder of the namespace."""

import json
import secrets
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from pairbus.emulator.auth import Right, SharedAccessRule
from pairbus.errors import ConfigurationError

ROOT_RULE = "RootManageSharedAccessKey"


def root_rule(key: str) -> SharedAccessRule:
    """Return the rule that has all rights over the namespace."""
    return SharedAccessRule(name=ROOT_RULE, primary_key=key, rights=frozenset(Right))


def check_rules(rules: Iterable[SharedAccessRule]) -> tuple[SharedAccessRule, ...]:
    """Return further rules. Raises ConfigurationError if two have the same name."""
    checked = tuple(rules)
    names = [ROOT_RULE, *(rule.name for rule in checked)]
    if len(set(names)) < len(names):
        raise ConfigurationError(
            f"Two shared access rules of the namespace have the same name: {', '.join(names)}"
        )
    return checked


def load_key(file: Path) -> str:
    """Return the key of the root rule, created at the first start."""
    if file.exists():
        return str(json.loads(file.read_text())[ROOT_RULE])
    key = b64encode(secrets.token_bytes(32)).decode()
    file.touch(mode=0o600)
    file.write_text(json.dumps({ROOT_RULE: key}))
    return key
