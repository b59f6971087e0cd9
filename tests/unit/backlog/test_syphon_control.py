"""The control file of a syphon."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairbus.backlog.syphon_control import Control, ControlFile
from pairbus.errors import ConfigurationError

pytestmark = pytest.mark.rule("Y12")


@pytest.fixture
def file(tmp_path: Path) -> ControlFile:
    return ControlFile(tmp_path / "control" / "orders.json")


def test_file_that_does_not_exist_changes_nothing(file: ControlFile) -> None:
    assert file.read() == Control()
    assert file.read().describe() == []
    assert not file.is_in_use()


def test_changes_are_kept_for_the_next_reader(file: ControlFile) -> None:
    file.update(Control.pause)
    file.update(lambda control: control.pause("bills"))
    file.update(lambda control: control.set_max_rate(50))
    file.update(lambda control: control.set_max_rate(2.5, "orders"))

    assert ControlFile(file.path).read() == Control(
        paused=True, paused_destinations=("bills",), max_rate=50, max_rates={"orders": 2.5}
    )
    assert file.read().describe() == [
        "Paused.",
        "bills is paused.",
        "At most 50 messages a second.",
        "At most 2.5 messages a second to orders.",
    ]


def test_reader_sees_a_change_of_another_process(file: ControlFile) -> None:
    reader = ControlFile(file.path)
    assert not reader.read().paused

    file.update(Control.pause)
    assert reader.read().paused

    file.update(Control.resume)
    assert not reader.read().paused


def test_resume_of_one_destination_keeps_the_others_paused() -> None:
    control = Control().pause("a").pause("b").pause()

    assert control.resume("a").paused_destinations == ("b",)
    assert control.resume() == Control()


def test_rate_is_removed_by_none() -> None:
    control = Control().set_max_rate(5).set_max_rate(7, "a")

    assert control.set_max_rate(None).set_max_rate(None, "a") == Control()


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rate_that_is_not_positive_is_an_error(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        Control().set_max_rate(rate)


def test_file_belongs_to_the_user_alone(file: ControlFile) -> None:
    file.update(Control.pause)

    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_updates_at_the_same_time_do_not_get_lost(file: ControlFile) -> None:
    def pause(number: int) -> None:
        ControlFile(file.path).update(lambda control: control.pause(f"{number:02}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pause, range(40)))

    assert file.read().paused_destinations == tuple(f"{number:02}" for number in range(40))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"paused": 1}', "nonsense"])
def test_damaged_file_is_an_error_for_commands_and_keeps_a_running_syphon_as_it_is(
    file: ControlFile, text: str
) -> None:
    file.update(Control.pause)
    reader = ControlFile(file.path)
    assert reader.read_or_keep().paused

    file.path.write_text(text)

    with pytest.raises(ConfigurationError, match=r"orders\.json is not a valid control file"):
        reader.read()
    assert reader.read_or_keep().paused


def test_file_is_in_use_while_a_syphon_runs(file: ControlFile) -> None:
    with file.in_use(), file.in_use():
        assert ControlFile(file.path).is_in_use()
    assert not file.is_in_use()
