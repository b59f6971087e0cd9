"""The workflows of GitHub and the hooks of pre-commit: valid, safe, and made of make targets."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PREPARATION = re.compile(r"apt-get|git .*diff --exit-code|mkdir sbom && mv ")
"""Steps that are no make target."""


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def run(*command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )


def schema_errors(schema: str, *files: Path) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}")
    return run(*command, *files)


def audit(*inputs: Path) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("zizmor")
    return run(program, "--offline", "--no-progress", "--quiet", *inputs)


def steps() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (file, step)
        for file in WORKFLOWS
        for job in load(file)["jobs"].values()
        for step in job["steps"]
    ]


def test_workflows_are_valid():
    result = schema_errors("github-workflows", *WORKFLOWS)

    assert result.returncode == 0, result.stdout


def test_dependabot_configuration_is_valid():
    result = schema_errors("dependabot", GITHUB / "dependabot.yml")

    assert result.returncode == 0, result.stdout


def test_workflows_have_no_security_findings():
    result = audit(GITHUB)

    assert result.returncode == 0, result.stdout


def test_workflow_with_faults_is_refused(tmp_path: Path):
    workflow = tmp_path / ".github" / "workflows" / "checks.yml"
    workflow.parent.mkdir(parents=True)
    text = (GITHUB / "workflows" / "checks.yml").read_text(encoding="utf-8")
    workflow.write_text(text.replace("runs-on", "runs_on"), encoding="utf-8")
    assert schema_errors("github-workflows", workflow).returncode == 1

    workflow.write_text(re.sub(r"checkout@\w+ # v6.0.2", "checkout@v6", text), encoding="utf-8")
    result = audit(workflow)
    assert result.returncode != 0
    assert "unpinned-uses" in result.stdout


def test_steps_call_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):.* ## ", makefile, re.MULTILINE))
    matrix = load(GITHUB / "workflows" / "checks.yml")["jobs"]["all"]["strategy"]["matrix"]
    called = set(matrix["target"])
    for file, step in steps():
        command = step.get("run", "")
        if "uses" in step or PREPARATION.search(command):
            continue
        assert command.startswith("make "), f"{file.name}: {command}"
        called |= {word for word in command.split()[1:] if re.fullmatch("[a-z-]+", word)}

    assert called <= targets
    assert called >= {"lint", "docs", "test", "test-core", "wheel", "sbom", "release-check"}


def test_only_the_publishing_job_gets_a_token_of_pypi():
    release = load(GITHUB / "workflows" / "release.yml")

    assert release["permissions"] == {"contents": "read"}
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in release["jobs"]["build"]
    assert not any("password" in step.get("with", {}) for _, step in steps())


@pytest.mark.parametrize("tool", ["ruff"])
def test_hooks_have_the_versions_of_make_lint(tool: str):
    repositories = load(ROOT / ".pre-commit-config.yaml")["repos"]
    revisions = {
        each["repo"].rpartition("/")[2]: each["rev"] for each in repositories if "rev" in each
    }
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert f"{tool}=={revisions[f'{tool}-pre-commit'].removeprefix('v')}" in pins


def test_hooks_run_what_make_lint_runs():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lint = makefile.partition("\nlint:")[2].partition("\n\n")[0]
    repositories = load(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = {hook["id"]: hook for each in repositories for hook in each["hooks"]}
    local = {hook["entry"] for hook in hooks.values() if "entry" in hook}

    commands = set(re.findall(r"\$\(PY\) -m (.+)", lint))
    assert {entry.removeprefix(".venv/bin/python -m ") for entry in local} <= commands
    assert {"ruff check .", "ruff format --check ."} == {
        command for command in commands if command.startswith("ruff")
    }
    assert hooks.keys() == {"ruff-check", "ruff-format", "mypy", "pyright"}
