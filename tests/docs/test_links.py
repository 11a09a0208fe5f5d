"""What a page points at is there."""

import pytest
from support.markdown import PAGES, Page
from support.repository import ROOT


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_relative_link_leads_somewhere(page: Page) -> None:
    assert [link for link in page.links() if "://" not in link and not leads_somewhere(page, link)] == []


def leads_somewhere(page: Page, link: str) -> bool:
    target, _, anchor = link.partition("#")
    file = (page.file.parent / target).resolve() if target else page.file
    inside = file.exists() and file.is_relative_to(ROOT)
    return inside and (not anchor or anchor in Page(file).anchors())


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        file = waiting.pop()
        if file in reached or file.suffix != ".md" or not file.is_file():
            continue
        reached.add(file)
        waiting += [(file.parent / link.partition("#")[0]).resolve() for link in Page(file).links()]
    pages = [page for page in PAGES if page.file.parent == ROOT / "docs"]

    assert [str(page) for page in pages if page.file not in reached] == []
