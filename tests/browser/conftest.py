"""One Chromium for all tests, fleets of real workers, and pages that fail the test when they fail."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, sync_playwright
from support.chromium import LEASES, launch
from support.page_jobs import install
from support.processes import Fleet, WorkerProcess, fleet

MEMORY = Path("/dev/shm")
WAIT_MS = 30_000
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A person's browser: its own cookies and pages."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


@pytest.fixture
def open_page(context: BrowserContext) -> Iterator[Open]:
    """Opens a page at an address. An exception in it, a refusal by its policy or a dialog fails the test."""
    problems: list[str] = []

    def refuse(dialog: Dialog) -> None:
        problems.append(dialog.message)
        dialog.dismiss()

    def read(line: ConsoleMessage) -> None:
        if "Content Security Policy" in line.text:
            problems.append(line.text)

    def open_page(url: str) -> Page:
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", refuse)
        page.on("console", read)
        page.goto(url)
        return page

    yield open_page
    assert problems == []


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    parent = str(MEMORY) if MEMORY.is_dir() and os.access(MEMORY, os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="drakkar-", dir=parent) as folder:
        yield Path(folder)


@pytest.fixture(name="fleet")
def a_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        yield made


@pytest.fixture
def start(fleet: Fleet, tmp_path: Path) -> Callable[..., list[WorkerProcess]]:
    """Starts workers that know the background workers of `page_jobs`, with short leases."""
    site = tmp_path / "site"

    def start(*names: str, settings: dict[str, object] | None = None, **jobs: object) -> list[WorkerProcess]:
        folder = site / str(len(fleet.started))
        environment = install(folder, **jobs)  # type: ignore[arg-type]  # as its own arguments
        started = [fleet.launch(name, LEASES | (settings or {}), quick=True, **environment) for name in names]
        for worker in started:
            worker.wait_until_it_runs()
        return started

    return start
