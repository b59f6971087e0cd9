"""The settings of a running syphon: its options, and what an operator has changed."""

from pathlib import Path

from pairbus.amqp.client import ClientOptions
from pairbus.backlog.syphon_control import ControlFile
from pairbus.syphon.live_control import LiveControl
from pairbus.syphon.options import SyphonOptions

OPTIONS = SyphonOptions(
    primary=ClientOptions(host="one"),
    secondary=ClientOptions(host="two"),
    queues=("q",),
    max_rate=10,
    max_rates={"orders": 1, "other": 2},
)


def test_options_apply_without_a_control_file() -> None:
    control = LiveControl(OPTIONS, None)

    assert not control.refresh()
    assert (control.paused, control.paused_destinations) == (False, frozenset())
    assert (control.max_rate, control.max_rates) == (10, {"orders": 1, "other": 2})


def test_settings_of_an_operator_apply_after_a_refresh(tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "control.json")
    control = LiveControl(OPTIONS, ControlFile(file.path))
    assert not control.refresh()
    file.update(
        lambda state: state.pause().pause("slow").set_max_rate(50).set_max_rate(7, "orders")
    )
    assert not control.paused

    assert control.refresh()
    assert not control.refresh()
    assert (control.paused, control.paused_destinations) == (True, {"slow"})
    assert (control.max_rate, control.max_rates) == (50, {"orders": 7, "other": 2})
