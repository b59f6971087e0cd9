"""The actions of an operator, with real namespaces and files."""

import json
from typing import Any

import pytest

from pairbus.backlog.syphon_control import Control, ControlFile
from tests.backlog import Backlog
from tests.console_client import ConsoleClient
from tests.integration.console.sites import Site, Sites
from tests.messages import message, numbered
from tests.waiting import wait_until

pytestmark = pytest.mark.rule("O2")


def redrive_of(client: ConsoleClient, id: str) -> Any:
    (job,) = [job for job in client.get("/api/state").json["redrives"] if job["id"] == id]
    return job


def ended(client: ConsoleClient, id: str) -> Any:
    """Wait for the end of a redrive, and return it."""
    return wait_until(
        lambda: (job := redrive_of(client, id))["state"] != "running" and job, "the redrive to end"
    )


def test_syphon_is_controlled_after_a_confirmation(site: Site):
    operator = site.browser("operator")
    control = ControlFile(site.folder / "control.json")
    body = {"action": "rate", "rate": 100, "destination": "orders"}

    question = operator.post("/api/syphon", body)
    assert question.json.keys() == {"text", "cost"}
    assert control.read() == Control()
    assert site.audit.count("syphon") == 0
    answer = operator.post("/api/syphon", body | {"confirm": True})

    assert answer.json == {"text": "At most 100 messages a second to orders."}
    assert control.read() == Control(max_rates={"orders": 100})
    assert operator.post("/api/syphon", body | {"confirm": "true"}).json.keys() == {"text", "cost"}
    wait_until(
        lambda: operator.get("/api/state").json["syphon"]["rates"] == {"orders": 100.0},
        "the control to be shown",
    )
    entry = json.loads(site.audit.splitlines()[-1])
    assert (entry["action"], entry["rate"], entry["destination"]) == ("syphon rate", 100, "orders")
    assert entry["actor"].startswith("operator ")
    assert entry["address"] == "127.0.0.1"


@pytest.mark.rule("O3")
def test_action_that_cannot_be_recorded_is_not_carried_out(sites: Sites):
    site = sites.start()
    operator = site.browser("operator")
    (site.folder / "audit.jsonl").unlink()
    (site.folder / "audit.jsonl").mkdir()

    answer = operator.post("/api/syphon", {"action": "pause", "confirm": True})

    assert answer.status == 503
    assert "nothing was done" in answer.json["error"]
    assert not (site.folder / "control.json").exists()


@pytest.mark.rule("R2")
def test_redrive_moves_dead_letters_of_one_reason(sites: Sites, backlog: Backlog):
    path = backlog.path("orders")
    backlog.put(path, numbered(20))
    backlog.dead_letter(20, "Broken", "because")
    backlog.put(path, numbered(3, "other"))
    backlog.dead_letter(3, "Other", "because")
    operator = sites.start().browser("operator")
    body = {"reason": "Broken", "destination": path}

    dry = operator.post("/api/redrive", body | {"dry_run": True, "confirm": True}).json["id"]
    assert ended(operator, dry)["text"] == f"Dry run: 20 to {path}."
    assert backlog.arrived(path) == []
    id = operator.post("/api/redrive", body | {"confirm": True}).json["id"]
    job = ended(operator, id)

    assert (job["state"], job["moved"], job["left"], job["total"]) == ("done", 20, 0, 20)
    assert (job["reason"], job["destination"], job["dry_run"]) == ("Broken", path, False)
    assert sorted(backlog.ids(path)) == sorted(f"m-{n}" for n in range(20))
    assert [reason for reason, _ in backlog.dead_letters()] == ["Other"] * 3
    wait_until(
        lambda: (
            [group["reason"] for group in operator.get("/api/state").json["dead_letters"]]
            == ["Other"]
        ),
        "the dead letters to be counted again",
    )


def test_cancelled_redrive_loses_nothing(sites: Sites, backlog: Backlog):
    path = backlog.path("orders")
    backlog.put(path, numbered(300))
    backlog.dead_letter(300, "Broken", "because")
    operator = sites.start().browser("operator")
    body = {"reason": "Broken", "rate": 20, "confirm": True}
    id = operator.post("/api/redrive", body).json["id"]

    wait_until(lambda: redrive_of(operator, id)["moved"] > 0, "the first messages to be moved")
    assert operator.post("/api/redrive", body).status == 409
    question = operator.request("DELETE", f"/api/redrive/{id}?confirm=0")
    assert "Nothing is lost" in question.json["text"]
    assert redrive_of(operator, id)["state"] == "running"
    assert operator.request("DELETE", f"/api/redrive/{id}?confirm=1").status == 200
    job = ended(operator, id)

    assert job["state"] == "cancelled"
    assert 0 < job["moved"] < 300
    remaining = len(backlog.dead_letters())
    assert len(set(backlog.ids(path))) == job["moved"]
    assert remaining + job["moved"] == 300
    assert operator.request("DELETE", "/api/redrive/none?confirm=1").status == 400


def test_redrive_to_a_destination_that_refuses_keeps_the_dead_letters(
    sites: Sites, backlog: Backlog
):
    backlog.put("missing", numbered(2))
    backlog.dead_letter(2, "EntityNotFound", "because")
    operator = sites.start().browser("operator")

    job = ended(operator, operator.post("/api/redrive", {"confirm": True}).json["id"])

    assert job["moved"] == 0
    assert "stay dead letters" in job["text"]
    assert len(backlog.dead_letters()) == 2


@pytest.mark.rule("O3")
def test_bodies_are_hidden_until_an_operator_asks_for_them(sites: Sites, backlog: Backlog):
    secret = "<script>alert('body')</script>\x00"
    backlog.put(backlog.path("orders"), [message("m-1", body=secret.encode())])
    site = sites.start()
    viewer, operator = site.browser("viewer"), site.browser("operator")
    query = "/api/peek?queue=0&count=5&dead_letters=0"

    hidden = viewer.get(f"{query}&confirm=1")
    assert hidden.json["messages"][0]["message_id"] == "m-1"
    assert "alert" not in hidden.body.decode()
    assert viewer.get(f"{query}&bodies=1&confirm=1").status == 403
    question = operator.get(f"{query}&bodies=1").json
    assert question["cost"].startswith("Up to 5 operations")
    assert "peek" not in site.audit
    shown = operator.get(f"{query}&bodies=1&confirm=1")

    assert shown.json["messages"][0]["body"] == secret
    assert shown.headers["content-type"] == "application/json"
    assert site.audit.count("peek at bodies") == 1


@pytest.mark.rule("O3")
def test_body_of_a_megabyte_is_cut_off(sites: Sites, backlog: Backlog):
    operator = sites.start().browser("operator")
    large = backlog.add_queue(2, max_message_size_in_kilobytes=4096)
    backlog.put(backlog.path("orders"), [message("m-1", body=b"x" * 2**20)], queue=large)

    answer = operator.get("/api/peek?queue=2&bodies=1&confirm=1")

    assert "more characters" in answer.json["messages"][0]["body"]
    assert len(answer.body) < 20_000


@pytest.mark.rule("O3")
def test_other_queues_cannot_be_peeked(site: Site):
    site.backlog.secondary.create_queue(f"{site.backlog.name}-private")

    for queue in (f"{site.backlog.name}-private", "", "../0", "99999999"):
        assert site.client("operator").get(f"/api/peek?queue={queue}&confirm=1").status == 400


def test_queue_that_does_not_exist_is_an_error(site: Site):
    answer = site.client("operator").get("/api/peek?queue=77&confirm=1")

    assert answer.status == 502
    assert answer.json["error"]
