"""The page in a browser: every tab, mistakes, both themes, phone and wide screen; nothing is fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli.riffle_command import succeed

from riffle.train.shipped import SHIPPED

from .conftest import FLAGS, Server

api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
Page, expect = api.Page, api.expect
TABS = ("Solve", "Length", "Switches", "Route", "Read")
LARGEST_PICTURE = 250_000
PICTURES = ("light", "dark", "phone")
"""Those the README shows."""


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[object]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, server: Server) -> Iterator[Callable[..., Page]]:
    """Open the page; when the test is over, nothing has been asked of another machine and nothing has failed."""
    elsewhere: list[str] = []
    failures: list[str] = []
    contexts = []

    def opened(width: int = 1280, height: int = 900, scheme: str = "light", query: str = "") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        local = (f"{server.address}/", "data:", "blob:")
        page.on("request", lambda sent: None if sent.url.startswith(local) else elsewhere.append(sent.url))
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda said: failures.append(said.text) if said.type == "error" else None)
        page.goto(f"{server.address}/{query}")
        page.wait_for_selector("#answer .answer")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not elsewhere
    assert not failures


def choose(page: Page, dropdown: str, option: str) -> None:
    page.locator(f"{dropdown} input").click()
    page.get_by_role("option", name=option, exact=True).click()


def go_to(page: Page, tab: str) -> None:
    page.get_by_role("tab", name=tab).click()


def solve(page: Page, text: str) -> None:
    page.locator("#input textarea").fill(text)
    page.locator("#solve").click()


def test_the_answer_is_that_of_riffle_solve(visit) -> None:
    page = visit()
    words = ["10", "3", "7", "7", "1", "11", "2", "9", "4"]
    solve(page, " ".join(words))
    expect(page.locator("#answer .answer")).to_have_attribute("data-expected", "1 2 3 4 7 7 9 10 11")
    printed = succeed("solve", "sort", *words, "--run", SHIPPED / "sort", "--json").json
    assert page.locator("#answer .answer").get_attribute("data-output") == printed["output"]
    cells = page.locator("#answer .cells span:not(.names)")
    assert " ".join(cell.split()[0] for cell in cells.all_inner_texts()) == printed["output"]


def test_reading(visit) -> None:
    page = visit()
    go_to(page, "Read")
    expect(page.locator("#reading .answer")).to_have_attribute("data-word", "dorrick", timeout=30_000)
    page.locator("#passage textarea").fill("Zoe met Tim. ___ Tim left.")
    page.keyboard.press("Enter")
    expect(page.locator("#reading [role=alert]")).to_contain_text("a blank before its end")


def test_mistakes_are_answered_in_place(visit) -> None:
    page = visit()
    said = page.locator("#answer [role=alert]")
    for typed, answer in (
        ("3 99", "Symbol 99 is outside 1..11"),
        ("", "There is no symbol"),
        ("<img src=x onerror=alert(1)>", "'<img' is not a symbol"),
        ("${1+1} {{value}}", "'${1+1}' is not a symbol"),
        ("1 " * 5000, "5000 symbols, and this page takes at most 4096"),
    ):
        solve(page, typed)
        expect(said).to_contain_text(answer)
    solve(page, "2 1")
    expect(page.locator("#answer .answer")).to_have_attribute("data-output", "1 2")
    expect(said).to_have_count(0)
    expect(page.locator(".toast-body")).to_have_count(0)


def test_length(visit) -> None:
    page = visit()
    go_to(page, "Length")
    expect(page.locator("#curve path.line.symbols")).to_be_visible()
    page.locator("#length input[type=range]").focus()
    for _ in range(10):  # four lengths between powers of two, and the power
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#length")).to_contain_text("Length: 64")
    page.locator("#measure").click()
    expect(page.locator("#curve path.live")).to_have_count(2)
    expect(page.locator("#curve .facts")).to_contain_text("Length 64")
    assert float(page.locator("#curve .facts").get_attribute("data-symbols") or "nan") > 0.9


def test_switches(visit) -> None:
    page = visit()
    go_to(page, "Switches")
    expect(page.locator("#network .switch")).to_have_count(7 * 8)
    page.locator("#layer input[type=number]").fill("3")
    page.keyboard.press("Tab")
    expect(page.locator("#network .facts")).to_contain_text("Layer 3 of 7")
    expect(page.locator("#network .switch.later")).to_have_count(4 * 8)
    page.locator("#switches-input textarea, #switches-input input").fill("4 3 2 1")
    expect(page.locator("#network .facts")).to_contain_text("Layer 5 of 5")  # the smallest network that was trained
    assert page.locator("#network .symbol.good").all_text_contents() == ["1", "2", "3", "4", *"····"]
    page.locator("#switches-input textarea, #switches-input input").fill("1 " * 40)
    expect(page.locator("#network [role=alert]")).to_contain_text("at most 32")
    page.locator("#switches-input textarea, #switches-input input").fill("2 1")
    expect(page.locator("#network .facts")).to_contain_text("Layer 5 of 5")
    page.locator("#switches-random").click()
    expect(page.locator("#network .facts")).to_contain_text("Layer 7 of 7")
    expect(page.locator(".toast-body")).to_have_count(0)


def test_route(visit) -> None:
    page = visit()
    go_to(page, "Route")
    expect(page.locator("#routed .message")).to_have_count(8)
    expect(page.locator("#choice")).to_be_hidden()
    choose(page, "#messages", "16 messages")
    page.locator("#random-route").click()
    expect(page.locator("#routed .message")).to_have_count(16)
    page.locator("#permutation textarea, #permutation input").fill("0 0 1 2")
    page.locator("#route").click()
    expect(page.locator("#routed [role=alert]")).to_contain_text("0 more than once")


@pytest.mark.parametrize(
    ("name", "width", "height", "scheme", "shown"),
    [
        ("light", 960, 900, "light", "Switches"),
        ("dark", 1280, 900, "dark", "Length"),
        ("phone", 390, 844, "light", "Route"),
        ("phone-dark", 390, 844, "dark", "Solve"),
    ],
)
def test_looks(visit, request, tmp_path, name: str, width: int, height: int, scheme: str, shown: str) -> None:
    page = visit(width, height, scheme)
    assert page.evaluate("document.body.classList.contains('dark')") == (scheme == "dark")
    for tab in (*TABS, shown):
        go_to(page, tab)
        if tab == "Length" and not page.locator("#curve path.live").count():
            page.locator("#measure").click()
            page.locator("#curve path.live").first.wait_for()
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        expect(page.locator(".result .pending")).to_have_count(0)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{tab} is wider than the screen"
    asked = request.config.getoption("--screenshots", default=None) if name in PICTURES else None
    folder = Path(asked or tmp_path)
    picture = folder / f"page-{name}.png"
    page.mouse.move(0, 0)
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size < LARGEST_PICTURE
