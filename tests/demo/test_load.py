"""Many at once: requests wait in the queue, none is lost, and the server does not grow."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from riffle.demo.solve import LoadedRun
from riffle.train.shipped import SHIPPED, solve

from .conftest import Server

REQUESTS, THREADS = 200, 200
TEXTS = [" ".join(str((i * k) % 11 + 1) for k in range(1, 9)) for i in range(REQUESTS)]
FLOODS, GROWTH = 8, 8 * 2**20
"""Of so many floods one adds less than these bytes: visitors that are never forgotten would add twice that each."""
direct = build_opener(ProxyHandler({}))


def ask(server: Server, text: str) -> dict[str, object]:
    """One request to the page's endpoint: put it in the queue, then read its result."""
    call = f"{server.address}/gradio_api/call/solve"
    body = json.dumps({"data": ["sort (shipped)", text]}).encode()
    with direct.open(Request(call, body, {"content-type": "application/json"}), timeout=60) as answer:
        event = json.load(answer)["event_id"]
    with direct.open(f"{call}/{event}", timeout=100) as stream:
        lines = stream.read().decode().splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return json.loads(data[-1])[0]


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, object]]:
    """What ``riffle solve`` answers to each text."""
    run = LoadedRun(SHIPPED / "sort")
    named = {"model": "sort (shipped)"}  # as the page names it
    return {text: asdict(solve("sort", text.split(), run)) | named for text in set(TEXTS)}


def flood(server: Server, expected: dict[str, dict[str, object]]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda text: ask(server, text), TEXTS))
    for text, answer in zip(TEXTS, answers, strict=True):
        assert answer == expected[text], "not what riffle solve answers"


def test_a_flood_is_answered(server: Server, expected: dict[str, dict[str, object]]) -> None:
    from riffle.demo.app import SESSIONS

    assert 2 * REQUESTS > SESSIONS, "the first two floods do not fill the memory of visitors"
    for count in range(FLOODS):
        before = server.memory()
        flood(server, expected)
        grown = server.memory() - before
        print(f"{REQUESTS} requests, {before / 2**20:.0f} MiB {grown / 2**20:+.1f}")
        if count >= 2 and grown < GROWTH:
            return
    pytest.fail("the server grows with every flood")


def test_mistakes_over_the_api(server: Server) -> None:
    assert "outside 1..11" in str(ask(server, "99")["error"])
