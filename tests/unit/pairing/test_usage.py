"""The usage of a pairing in its ledger."""

import json
from pathlib import Path

from pairbus.pairing.usage import PairingUsage


def test_failed_peek_is_recorded_as_not_answered(tmp_path: Path) -> None:
    usage = PairingUsage(tmp_path, "primary", "secondary")
    usage.add_peek("orders", [])
    usage.add_peek("orders", None)
    usage.close()
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    records = [record for record in map(json.loads, lines) if record.get("kind") == "peek"]
    assert sorted((record["answered"], record["operations"]) for record in records) == [
        (False, 1),
        (True, 1),
    ]
