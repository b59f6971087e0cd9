"""The manifests of deploy/kubernetes: valid objects, commands that exist, and a restricted pod.

`scripts/images.py` builds the overlays with kustomize.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

import pairbus
from pairbus.cli.app import app

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "kubernetes"
BASE = FOLDER / "base"
VERSION = kubernetes_validate.latest_version()


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


KUSTOMIZATION = load(BASE / "kustomization.yaml")
OBJECTS = {name: load(BASE / name) for name in KUSTOMIZATION["resources"]}
POD = OBJECTS["stateful-set.yaml"]["spec"]["template"]["spec"]
CONTAINERS = {container["name"]: container for container in POD["containers"]}


@pytest.mark.parametrize("name", OBJECTS)
def test_object_is_valid(name: str):
    kubernetes_validate.validate(OBJECTS[name], VERSION, strict=True)


def test_every_file_is_part_of_the_base():
    assert {file.name for file in BASE.glob("*.yaml")} == {*OBJECTS, "kustomization.yaml"}


def test_invalid_object_is_found():
    network_policy = {**OBJECTS["network-policy.yaml"], "spec": {"podSelectors": {}}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(network_policy, VERSION, strict=True)


@pytest.mark.parametrize("name", CONTAINERS)
def test_arguments_are_those_of_the_command(name: str):
    command, *arguments = CONTAINERS[name]["args"]
    group: Any = get_command(app)
    parsed = group.commands[command].make_context(command, arguments, resilient_parsing=True)

    given = {argument.partition("=")[0] for argument in arguments}
    known = {option for each in parsed.command.params for option in each.opts}
    assert given <= known
    assert parsed.params["status_file"] == Path("/run/pairbus/syphon.json")


@pytest.mark.parametrize("name", CONTAINERS)
def test_container_is_restricted(name: str):
    context = CONTAINERS[name]["securityContext"]

    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] == 10001
    assert POD["automountServiceAccountToken"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert {"requests", "limits"} <= CONTAINERS[name]["resources"].keys()
    assert {"startupProbe", "livenessProbe"} <= CONTAINERS[name].keys()


def test_every_volume_is_defined_and_mounted():
    claims = OBJECTS["stateful-set.yaml"]["spec"]["volumeClaimTemplates"]
    volumes = {volume["name"] for volume in POD["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in claims}
    mounts = {
        mount["name"] for container in POD["containers"] for mount in container["volumeMounts"]
    }

    assert mounts == volumes


def test_files_of_arguments_and_probes_are_on_volumes():
    for container in POD["containers"]:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        for argument in container["args"]:
            value = argument.partition("=")[2]
            if value.startswith("/"):
                assert any(value.startswith(f"{path}/") for path in paths), argument


def test_selectors_and_ports_refer_to_the_pod():
    template = OBJECTS["stateful-set.yaml"]["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    service, policy = OBJECTS["service.yaml"]["spec"], OBJECTS["network-policy.yaml"]["spec"]
    ports = {port["name"] for container in POD["containers"] for port in container["ports"]}

    assert service["selector"].items() <= labels
    assert policy["podSelector"]["matchLabels"].items() <= labels
    assert {port["targetPort"] for port in service["ports"]} == ports
    assert {port["port"] for port in policy["ingress"][0]["ports"]} == ports
    assert labels >= {"azure.workload.identity/use": "true"}.items()


def test_images_have_the_version_of_the_package():
    for folder in (BASE, FOLDER / "example"):
        images = load(folder / "kustomization.yaml")["images"]
        assert {image["newTag"] for image in images} == {pairbus.__version__}
        assert {image["name"] for image in images} == {
            container["image"] for container in POD["containers"]
        }


def test_secrets_are_explained():
    page = (FOLDER.parents[1] / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
    secrets = {volume["secret"]["secretName"] for volume in POD["volumes"] if "secret" in volume}

    assert secrets == {"pairbus-tls", "pairbus-metrics"}
    for name in secrets | {"pairbus-namespaces"}:
        assert name in page
