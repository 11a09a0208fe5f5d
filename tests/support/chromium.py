"""Debian's Chromium, driven by Playwright, and what workers are started with whose pages it looks at."""

import shutil

from playwright.sync_api import Browser, Playwright

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
LEASES = {
    "supervisor.leases.ttl_seconds": 6,
    "supervisor.leases.renew_seconds": 1,
    "supervisor.leases.retry_seconds": 0.5,
    "supervisor.leases.timeout_seconds": 2,
    "fleet.registry.timeout_seconds": 5,
}
"""Short, but bearable on a machine that is busy with other things."""


def launch(playwright: Playwright) -> Browser:
    chromium = shutil.which("chromium")
    assert chromium is not None, "there is no chromium: run ./scripts/install-servers"
    return playwright.chromium.launch(executable_path=chromium, args=[*FLAGS])
