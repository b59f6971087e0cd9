"""`pairbus syphon control`, without a syphon and beside one."""

import json
from pathlib import Path

import pytest

from pairbus.backlog.syphon_control import Control, ControlFile
from tests.commands import ONE, run_here

pytestmark = pytest.mark.rule("Y12")
NAME = ("--primary-name", "orders")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of state, and the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pairbus" / "control"


def test_commands_change_the_file_of_the_primary(state: Path) -> None:
    for arguments in (
        ["pause", *NAME],
        ["pause", "--destination", "bills", "--primary", ONE.replace("one.", "orders.")],
        ["rate", "50", *NAME],
        ["rate", "2", "--destination", "big", *NAME],
    ):
        assert run_here("syphon", "control", *arguments).exit_code == 0

    file = ControlFile(state / "orders.json")
    assert file.read() == Control(
        paused=True, paused_destinations=("bills",), max_rate=50, max_rates={"big": 2}
    )
    run_here("syphon", "control", "resume", *NAME)
    run_here("syphon", "control", "rate", "none", *NAME)
    assert file.read() == Control(max_rates={"big": 2})


def test_status_tells_if_a_syphon_uses_the_file(state: Path) -> None:
    idle = run_here("syphon", "control", "status", *NAME)
    with ControlFile(state / "orders.json").in_use():
        run_here("syphon", "control", "pause", *NAME)
        used = run_here("syphon", "control", "status", *NAME)
        values = json.loads(run_here("syphon", "control", "status", "--json", *NAME).stdout)

    assert idle.stdout == "Not paused, and no rate is set here.\n"
    assert "No running syphon uses" in idle.stderr
    assert (used.stdout, used.stderr) == ("Paused.\n", "")
    assert (values["paused"], values["running"]) == (True, True)


def test_pairing_of_the_configuration_file_names_the_primary(state: Path) -> None:
    Path("pairbus.toml").write_text(
        "[pairings.a]\nprimary_name = 'first'\n[pairings.b]\nprimary = 'second.example.net'\n"
    )

    for name in ("a", "b"):
        assert run_here("syphon", "control", "pause", "--pairing", name).exit_code == 0

    assert sorted(file.name for file in state.glob("*.json")) == ["first.json", "second.json"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["pause"], "The name of the primary is missing"),
        (["rate", "fast", *NAME], "The rate must be a number or none"),
        (["rate", "0", *NAME], "The rate must be above 0"),
        (["pause", "--primary", "localhost"], "The name of the primary is missing"),
    ],
)
def test_invalid_option_has_exit_status_2(state: Path, arguments: list[str], error: str) -> None:
    result = run_here("syphon", "control", *arguments)

    assert result.exit_code == 2
    assert error in result.stderr
    assert list(state.glob("*.json")) == []
