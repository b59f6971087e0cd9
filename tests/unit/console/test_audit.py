"""The audit log."""

import json
from pathlib import Path

import pytest

from pairbus.console.audit import AuditLog, AuditUnavailable

pytestmark = pytest.mark.rule("O3")


def test_entries_are_appended_as_lines_of_json(tmp_path: Path):
    audit = AuditLog(tmp_path / "console" / "audit.jsonl", now=lambda: 0.0)

    audit.write("syphon pause", actor="operator 1", address="127.0.0.1", details={"rate": None})
    audit.write("login\n", actor="x\u2028", address="::1", details={"path": "a\nb" * 1_000})

    first, second = map(json.loads, audit.path.read_text().splitlines())
    assert first == {
        "time": "1970-01-01T00:00:00.000Z",
        "action": "syphon pause",
        "actor": "operator 1",
        "address": "127.0.0.1",
        "rate": None,
    }
    assert second["action"] == "login\n"
    assert len(second["path"]) < 600
    assert audit.path.stat().st_mode & 0o777 == 0o600


def test_entry_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    audit = AuditLog(tmp_path / "file" / "audit.jsonl")

    with pytest.raises(AuditUnavailable, match="nothing was done"):
        audit.write("pause", actor="operator 1", address="")
