"""Invalid and contradictory options: one sentence that says what to do, and exit status 2."""

from pathlib import Path

import pytest

from tests.commands import LOCAL, ONE, TWO, run_here

PAIRING = ("--primary", ONE, "--secondary", TWO)
BACKLOG = ("--secondary", TWO, "--primary-name", "one")


def error_of(*arguments: str, **variables: str) -> str:
    result = run_here(*arguments, **variables)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return result.stderr.removesuffix("\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ("dead-letters", "list", *BACKLOG, "--namespace", "primary"),
            "--namespace needs --entity PATH.",
        ),
        (
            ("dead-letters", "redrive", *PAIRING, "--no-spark", "--master", "local"),
            "Use --master or --no-spark, not both.",
        ),
        (
            ("syphon", *PAIRING, "--ledger", "folder", "--no-ledger"),
            "Use --ledger or --no-ledger, not both.",
        ),
        (
            ("console", *PAIRING, "--ledger", "folder", "--no-ledger"),
            "Use --ledger or --no-ledger, not both.",
        ),
        (
            ("syphon", *PAIRING, "--only", ""),
            "--only needs the path of a queue or topic, such as orders.",
        ),
        (
            ("syphon", *PAIRING, "--ttl", "keep"),
            "--ttl must be one of restore, deduct, not 'keep'.",
        ),
        (("console", *PAIRING, "--tls-key", "key.pem"), "--tls-key needs --tls-cert FILE."),
        (
            ("console", *PAIRING, "--tls-cert", "cert.pem", "--emulator-certificate"),
            "Use --tls-cert or --emulator-certificate, not both.",
        ),
        (
            ("cost", "forecast", "--backlog-queues", "0"),
            "--backlog-queues must be an integer of at least 1, not 0",
        ),
        (
            ("drill", "--size", "99999999"),
            "--size must be between 1 and 200,000, not 99,999,999.",
        ),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_options_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], error: str, tmp_path: Path
) -> None:
    assert error_of(*arguments, XDG_STATE_HOME=str(tmp_path)) == error


@pytest.mark.parametrize(
    "command", [("status",), ("syphon",), ("drill",), ("dead-letters", "list")]
)
def test_ca_file_without_a_certificate_is_an_invalid_option(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.cli.drill.check_spark", lambda err: True)
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")

    assert error_of(*command, *PAIRING, "--ca-file", str(file)) == (
        f"--ca-file: {file} cannot be used: it has no certificate in PEM format. Use a PEM file "
        "with the CA certificates."
    )


@pytest.mark.parametrize("command", [("backlog", "peek"), ("dead-letters", "list")])
def test_namespace_that_cannot_be_reached_is_named_with_what_to_check(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    options = ("--secondary", LOCAL, "--primary-name", "one", "--timeout", "5")
    result = run_here(*command, *options, XDG_STATE_HOME=str(tmp_path))

    assert result.exit_code == 1
    assert result.stderr.startswith("Cannot connect to localhost:5: ")
    assert result.stderr.endswith(". Check the address, the port and the network.\n")


def test_backlog_that_cannot_be_read_is_reported_with_what_to_check() -> None:
    options = ("--secondary", LOCAL, "--primary-name", "one", "--timeout", "5")
    result = run_here("backlog", "list", *options)

    assert result.exit_code == 1
    assert result.stderr.startswith("The backlog could not be read: cannot connect to localhost:5")
    assert result.stderr.endswith(
        ". Check the address of the secondary, the key and its rights, and the network.\n"
    )


def test_control_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "control.json"

    error = error_of("syphon", "control", "pause", "--control-file", str(path))

    assert error.startswith(f"The control file cannot be used: {tmp_path / 'file'}")
    assert error.endswith("Choose another one with --control-file, here and for the syphon.")


def test_folder_of_a_drill_that_cannot_be_created_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.cli.drill.check_spark", lambda err: True)
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"

    assert error_of("drill", "--folder", str(folder)) == (
        f"--folder: {folder} cannot be used: Not a directory. Use an empty or new folder."
    )
