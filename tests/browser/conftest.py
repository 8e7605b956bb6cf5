"""A JupyterLab and a browser for the session, a page a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.lab import CHROMIUM, CHROMIUM_FLAGS, Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab in an empty folder."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, headless."""
    if CHROMIUM is None:
        pytest.fail("The browser tests need Chromium (Debian: apt-get install chromium), which .ci/run installs.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a session of its own."""
    context = browser.new_context(viewport={"width": 1100, "height": 1100})
    yield context.new_page()
    context.close()
