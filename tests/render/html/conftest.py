"""A headless browser without network for the tests of pages. `make browser-test` installs what it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make browser-test installs it")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Any]]:
    """Return what opens a page of this machine in a tab; an error of its script, or a request, fails the test."""
    contexts: list[Any] = []
    errors: list[str] = []
    requests: list[str] = []

    def open_(address: str, **facts: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, "offline": True, **facts})
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(address)
        tab.wait_for_selector("html[data-ready='1']")
        return tab

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith("file:")] == []
