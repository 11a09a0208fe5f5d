"""Pictures of the pages, for people to look at: `python tests/browser/screenshots.py FOLDER`."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from drakkar.fleet.testkit import make_card
from playwright.sync_api import Browser, sync_playwright
from support.chromium import LEASES, launch
from support.hostile_cards import ALIKE, ERROR, hostile_cards, long_card, write
from support.page_jobs import install
from support.processes import fleet, wait_for

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
MANY = 1000


def take(browser: Browser, url: str, target: Path, wait_for_text: str, **look: Any) -> None:
    context = browser.new_context(**look)
    page = context.new_page()
    page.goto(url)
    page.get_by_text(wait_for_text).first.wait_for()
    page.wait_for_timeout(1500)
    page.screenshot(path=target, full_page=True)
    context.close()


def small(browser: Browser, work: Path, target: Path) -> None:
    environment = install(work / "site")
    settings = {**LEASES, "workers": "indexer,sweeper,expiry,reports", "cluster_name": "search"}
    with fleet(work) as made:
        names = ("worker-1", "worker-2", "worker-3")
        workers = [made.launch(name, settings, quick=True, **environment) for name in names]
        for worker in workers:
            worker.wait_until_it_runs()
        url = workers[0].url
        wait_for(lambda: len(workers[0].rows()) == len(names))
        workers[2].kill()
        wait_for(lambda: workers[0].online()["worker-3"] is False)
        for name, look in {
            "light": {"viewport": DESKTOP, "color_scheme": "light"},
            "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
            "phone": {"viewport": PHONE, "color_scheme": "light"},
            "phone-dark": {"viewport": PHONE, "color_scheme": "dark"},
        }.items():
            take(browser, url, target / f"live-{name}.png", "backing off", **look)
            take(browser, f"{url}history", target / f"history-{name}.png", "crashed", **look)


def hostile(browser: Browser, work: Path, target: Path) -> None:
    environment = install(work / "site", error=ERROR)
    settings = {**LEASES, "workers": "indexer,reports", "fleet.registry.offline_after_seconds": 3600}
    with fleet(work) as made:
        write(made.cards, *hostile_cards(), long_card())
        worker = made.launch("worker-1", settings, quick=True, **environment)
        worker.wait_until_it_runs()
        wait_for(lambda: len(worker.rows()) > len(ALIKE))
        for shown, query in {"hostile": "", "alike": "?name=tw", "long": "?name=ww"}.items():
            looks: dict[str, dict[str, Any]] = {
                "": {"viewport": {"width": 1200, "height": 900}},
                "-dark": {"viewport": {"width": 1200, "height": 900}, "color_scheme": "dark"},
                "-phone": {"viewport": PHONE},
            }
            for name, look in looks.items():
                take(browser, worker.url + query, target / f"live-{shown}{name}.png", "backing off", **look)


def large(browser: Browser, work: Path, target: Path) -> None:
    with fleet(work) as made:
        made.cards.mkdir(parents=True)
        for n in range(2, MANY + 1):
            leads = {"leader_for": ["sweeper"]} if n % 9 == 0 else {}
            card = make_card(f"worker-{n}", cluster=f"cluster-{n % 7}", features=leads)
            made.card(f"worker-{n}").write_text(json.dumps(card))
        worker = made.start_one("worker-1", {"fleet.registry.offline_after_seconds": 3600})
        wait_for(lambda: len(worker.rows()) == MANY)
        take(browser, worker.url, target / "live-1000.png", f"{MANY} workers", viewport=DESKTOP)
        take(browser, worker.url, target / "live-1000-phone.png", f"{MANY} workers", viewport=PHONE)


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for make in (small, hostile, large):
            with tempfile.TemporaryDirectory() as work:
                make(browser, Path(work), target)
        browser.close()
    print(*sorted(str(path) for path in target.glob("*.png")), sep="\n")


if __name__ == "__main__":
    main()
