"""The pytest plugin gives tests of other projects their own namespaces."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts.wheel_example import first_example

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "pairbus.emulator.pytest_plugin"

pytestmark = pytest.mark.rule("N5")

TESTS = """
import sys
from pathlib import Path

import pytest

folders = []


def entities(namespace):
    return namespace.call(lambda runtime: {
        entity.path: entity.description for entity in runtime.entities.all()
    })


def test_emulator_is_not_imported_for_other_tests():
    loaded = [name for name in sys.modules if name.split(".")[0] == "pairbus"]
    assert sorted(loaded) == ["pairbus", "pairbus.emulator", "pairbus.emulator.pytest_plugin"]
    assert "azure.servicebus" not in sys.modules


@pytest.mark.servicebus_queue("sessions", max_delivery_count=3)
@pytest.mark.servicebus_queue("forwards", forward_to="news")
@pytest.mark.servicebus_topic("news", subscriptions=["a"])
class TestMarks:
    @pytest.mark.servicebus_queue("sessions", requires_session=True)
    @pytest.mark.servicebus_namespace("orders")
    def test_marks_create_entities(self, servicebus_namespace):
        assert servicebus_namespace.name == "orders"
        found = entities(servicebus_namespace)
        assert sorted(found) == ["forwards", "news", "news/Subscriptions/a", "sessions"]
        assert found["sessions"].requires_session
        assert found["sessions"].max_delivery_count == 10
        folders.append(servicebus_namespace.folder)

    def test_each_test_has_its_own_namespace(self, servicebus_namespace):
        assert not folders[0].exists()
        assert not entities(servicebus_namespace)["sessions"].requires_session


@pytest.mark.servicebus_namespace(on_disk=True)
def test_data_is_kept_in_tmp_path(servicebus_namespace, tmp_path):
    assert servicebus_namespace.folder == tmp_path
    folders.append(tmp_path)


def test_factory_starts_namespaces(servicebus_namespace_factory, tmp_path):
    assert (folders[1] / "namespace.db").exists()
    with servicebus_namespace_factory("a", queues=["q"]) as first:
        assert list(entities(first)) == ["q"]
        second = servicebus_namespace_factory("a", folder=tmp_path)
        assert entities(second) == {}
        assert first.folder.parent.parent == Path("SHARED")


@pytest.mark.servicebus_queue("q", lock=5)
def test_wrong_mark(servicebus_namespace):
    pass
"""


SHORT_SLEEPS = """
# The SDK waits 50 ms at a time while it opens a link, and up to a second when it closes one.
import asyncio, time

def shorten(sleep):
    return lambda seconds, *rest: sleep(min(seconds, 0.002), *rest)

time.sleep, asyncio.sleep = shorten(time.sleep), shorten(asyncio.sleep)
"""


def run_pytest(folder: Path, *arguments: str, path: tuple[Path, ...] = ()) -> tuple[int, str]:
    """Run the tests of a project in a process, and return its exit status and output."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT / "src")))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=250,
    )
    return result.returncode, result.stdout


def entry_points(folder: Path) -> Path:
    """Create a folder with the plugin's entry point, as the installation of the wheel does."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        ((name, module),) = tomllib.load(file)["project"]["entry-points"]["pytest11"].items()
    information = folder / "installed-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    return folder


def test_installed_plugin_provides_fixtures_and_marks(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path.parent)
    (project / "test_marks.py").write_text(TESTS.replace("SHARED", shared))
    (project / "conftest.py").write_text(f"pytest_plugins = [{PLUGIN!r}]\n")  # a second time
    status, output = run_pytest(
        project, "--strict-markers", "-rE", path=(entry_points(tmp_path / "site"),)
    )
    assert "5 passed, 1 error" in output
    assert "queue 'q' has no setting 'lock'. Its settings are: authorization_rules," in output
    assert "pytest_marks.py" not in output  # no traceback
    assert status == pytest.ExitCode.TESTS_FAILED


def test_tests_of_the_example_and_of_the_documentation_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "testing.md").read_text(encoding="utf-8")
    documented = tmp_path / "test_documented.py"
    documented.write_text(first_example(page))
    (tmp_path / "short_sleeps.py").write_text(SHORT_SLEEPS)
    status, output = run_pytest(
        ROOT / "examples" / "pytest-plugin",
        *("-p", PLUGIN, "-p", "short_sleeps", "tests", str(documented)),
        *("--servicebus-on-disk", "--basetemp", str(tmp_path / "kept")),
        path=(tmp_path,),
    )
    assert status == 0, output
    assert "6 passed" in output
    assert len(list((tmp_path / "kept").glob("*[0-9]/namespace.db"))) == 7
