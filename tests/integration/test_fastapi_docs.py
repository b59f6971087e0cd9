"""The application of docs/how-to/fastapi.md accepts orders during an outage."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from pairbus.emulator import EmulatorProcess
from tests.documentation import ROOT, read_blocks

PAGE = ROOT / "docs" / "how-to" / "fastapi.md"


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[EmulatorProcess]:
    with EmulatorProcess("primary", "secondary", queues=["orders"], folder=tmp_path) as emulator:
        yield emulator


@pytest.fixture
def app(
    emulator: EmulatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FastAPI]:
    primary, secondary = emulator.namespaces.values()
    monkeypatch.setenv("PAIRBUS_PRIMARY", primary.connection_string)
    monkeypatch.setenv("PAIRBUS_SECONDARY", secondary.connection_string)
    monkeypatch.setenv("PAIRBUS_PRIMARY_NAME", "primary")
    (block,) = (block for block in read_blocks(PAGE) if block.language == "python")
    (tmp_path / "shop.py").write_text(block.code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("shop").app
    del sys.modules["shop"]


async def test_orders_are_accepted_while_one_namespace_is_available(
    app: FastAPI, emulator: EmulatorProcess
) -> None:
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        before = await client.post("/orders", content=b"1 teapot")
        emulator.kill_namespace("primary")
        during = await client.post("/orders", content=b"2 teapots")
        paths = await client.get("/paths")
        emulator.kill_namespace("secondary")
        without = await client.post("/orders", content=b"3 teapots")

    assert (before.status_code, during.status_code) == (202, 202)
    assert paths.json() == {"orders": "failover"}
    assert (without.status_code, without.headers["Retry-After"]) == (503, "30")
