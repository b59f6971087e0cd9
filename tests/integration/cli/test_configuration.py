"""Configuration files and environment variables of commands."""

from pathlib import Path

import pytest

from tests.backlog import Backlog
from tests.commands import ONE, TWO, run_here
from tests.messages import numbered

UNSET_VARIABLE = "[pairings.a]\nprimary = 'a.example.net'\nsecondary_env = 'NOT_SET'"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of commands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def section(backlog: Backlog, name: str = "orders") -> str:
    return (
        f'[pairings.{name}]\nprimary = "{backlog.primary.connection_string}"\n'
        f'secondary_env = "THE_SECONDARY"\nprimary_name = "{backlog.name}"\nbacklog_queues = 2\n'
    )


def variables(backlog: Backlog) -> dict[str, str]:
    return {"THE_SECONDARY": backlog.secondary.connection_string}


@pytest.mark.rule("Y12")
@pytest.mark.parametrize(
    ("command", "status"),
    [("status", 3), ("backlog list", 0), ("backlog destinations", 0), ("backlog peek", 0)],
)
def test_command_takes_the_pairing_of_the_file(
    backlog: Backlog, folder: Path, command: str, status: int
) -> None:
    backlog.put("orders", numbered(3))
    (folder / "pairbus.toml").write_text(section(backlog))

    result = run_here(*command.split(), **variables(backlog))

    assert result.exit_code == status, result.stderr
    assert "3" in result.stdout
    assert result.stderr == ""


def test_dry_run_of_a_syphon_takes_the_pairing_of_the_file(backlog: Backlog, folder: Path) -> None:
    backlog.put("orders", numbered(3))
    file = folder / "other.toml"
    file.write_text(section(backlog))

    result = run_here(
        "syphon", "--dry-run", "--no-ledger", PAIRBUS_CONFIG=str(file), **variables(backlog)
    )

    assert (result.exit_code, result.stderr) == (0, "")
    assert "3 messages. Nothing was moved." in result.stdout


@pytest.mark.rule("Y12", "R1")
def test_dead_letters_take_the_pairing_of_the_file(backlog: Backlog, folder: Path) -> None:
    orders = backlog.path("orders")
    backlog.put(orders, numbered(2))
    backlog.dead_letter(2, "EntityNotFound", "gone")
    text = section(backlog) + section(backlog, "bills").replace("THE_SECONDARY", "NOT_SET")
    for name, of_file, arguments in (
        ("pairbus.toml", section(backlog), []),
        ("several.toml", text, ["--config", "several.toml", "--pairing", "orders"]),
    ):
        (folder / name).write_text(of_file)
        result = run_here("dead-letters", "list", "--no-ledger", *arguments, **variables(backlog))
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines()[1].split()[:3] == ["EntityNotFound", orders, "2"]

    entity = ["--config", "several.toml", "--entity", "no-such-queue"]
    primary = backlog.primary.connection_string
    not_needed = run_here("dead-letters", "list", "--no-ledger", *entity, PAIRBUS_PRIMARY=primary)
    needed = run_here("dead-letters", "list", *entity[:2])
    assert "has no queue or subscription 'no-such-queue'" in not_needed.stderr
    assert needed.exit_code == 2
    assert "select a pairing of a configuration file with --pairing NAME" in needed.stderr


def test_option_comes_before_variable_and_variable_before_file(
    backlog: Backlog, folder: Path
) -> None:
    (folder / "pairbus.toml").write_text(section(backlog))
    paths = []
    for arguments, more in (
        ([], {}),
        ([], {"PAIRBUS_PRIMARY_NAME": "of-variable"}),
        (["--primary-name", "of-option"], {"PAIRBUS_PRIMARY_NAME": "of-variable"}),
    ):
        result = run_here("backlog", "list", "--json", *arguments, **variables(backlog), **more)
        paths.append(result.stdout.split('"queue": "')[1].split("/")[0])

    assert paths == [backlog.name, "of-variable", "of-option"]


def test_number_of_queues_comes_from_the_variable(backlog: Backlog) -> None:
    result = run_here(
        "status",
        "--primary-name",
        backlog.name,
        PAIRBUS_BACKLOG_QUEUES="1",
        **backlog.variables,
    )

    assert "--backlog-queues is 1, but backlog queue 1 exists too" in result.stdout


@pytest.mark.parametrize("command", [("backlog", "list"), ("status",)], ids=" ".join)
def test_several_pairings_need_a_choice_unless_the_namespaces_are_given(
    backlog: Backlog, folder: Path, command: tuple[str, ...]
) -> None:
    text = section(backlog) + section(backlog, "bills").replace("THE_SECONDARY", "NOT_SET")
    (folder / "pairbus.toml").write_text(text)

    without = run_here(*command, **variables(backlog))
    chosen = run_here(*command, "--pairing", "orders", **variables(backlog))
    given = run_here(*command, *backlog.arguments, **backlog.variables)

    assert (without.exit_code, without.stderr) == (
        2,
        "pairbus.toml has several pairings: orders, bills. Select one with --pairing NAME.\n",
    )
    assert (chosen.exit_code, given.exit_code) == (0, 0), chosen.stderr + given.stderr


@pytest.mark.parametrize(
    "command", ["status", "backlog list", "dead-letters list", "syphon --dry-run", "drill"]
)
@pytest.mark.parametrize(
    ("text", "arguments", "error"),
    [
        ("[pairings.a]\nqueues = 3", ["--pairing", "a"], "[pairings.a] queues: this key is not"),
        (
            "[pairings.a]\nprimary = 'x.y.z'\nsecondary_env = 'NOT_SET'",
            ["--pairing", "a"],
            "NOT_SET is not set",
        ),
        ("[pairings.a]\nprimary = 'x'", ["--pairing", "b"], "no section [pairings.b]"),
        ("", ["--config", "no.toml", "--pairing", "a"], "no.toml cannot be read"),
        (None, ["--pairing", "a"], "--pairing needs a configuration file"),
    ],
    ids=["key", "variable", "section", "file", "no file"],
)
def test_error_of_the_file_has_exit_status_2(
    folder: Path, command: str, text: str | None, arguments: list[str], error: str
) -> None:
    if text is not None:
        (folder / "pairbus.toml").write_text(text)

    result = run_here(*command.split(), *arguments)

    assert result.exit_code == 2
    assert error in result.stderr


def test_drill_uses_a_pairing_only_if_it_is_named(folder: Path) -> None:
    (folder / "pairbus.toml").write_text(
        f'[pairings.a]\nprimary = "{ONE}"\nsecondary = "{TWO}"\ntransport = "websocket"\n'
    )

    named = run_here("drill", "--pairing", "a", "--tier", "standard")
    local = run_here("drill", "--tier", "no-such-tier")

    assert named.exit_code == 2
    assert "--tier is for namespaces on this machine" in named.stderr
    assert local.exit_code == 2
    assert "no-such-tier" in local.stderr


def test_syphon_without_namespaces_names_the_ways_to_give_them(folder: Path) -> None:
    result = run_here("syphon", "--once")

    assert (result.exit_code, result.stderr) == (
        2,
        "--primary is missing. Add it, set PAIRBUS_PRIMARY, or use a configuration file.\n",
    )


def test_dry_run_shows_every_pairing_of_the_file(backlog: Backlog, folder: Path) -> None:
    backlog.put("orders", numbered(3))
    (folder / "pairbus.toml").write_text(section(backlog) + section(backlog, "bills"))

    result = run_here("syphon", "--dry-run", "--no-ledger", **variables(backlog))

    assert (result.exit_code, result.stderr) == (0, "")
    assert [line for line in result.stdout.splitlines() if line.endswith(":")] == [
        "orders:",
        "bills:",
    ]
    assert result.stdout.count("3 messages. Nothing was moved.") == 2


def test_error_in_one_of_several_pairings_names_its_section(backlog: Backlog, folder: Path) -> None:
    text = section(backlog) + f'[pairings.bills]\nprimary = "{ONE}"\n'
    (folder / "pairbus.toml").write_text(text)

    result = run_here("syphon", "--once", "--no-ledger", **variables(backlog))

    assert result.exit_code == 2
    assert result.stderr.startswith("pairbus.toml, [pairings.bills]: --secondary is missing")
