"""Reading our own Markdown: headings, links, fenced blocks and tables, as far as these pages use them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from support.repository import ROOT, text_files


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    file: Path
    line: int
    info: str
    text: str
    mark: str
    """What an HTML comment on the line above says; empty without one."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    file: Path

    def __str__(self) -> str:
        return str(self.file.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.file.read_text()

    @property
    def prose(self) -> str:
        """The page without its fenced blocks."""
        return re.sub(r"^ *```.*?^ *```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    def anchors(self) -> set[str]:
        """What `#...` may name: headings, lower case, without punctuation, hyphens for spaces."""
        headings = re.findall(r"^#+ +(.+?) *$", self.prose, re.MULTILINE)
        plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in headings)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}

    def links(self) -> list[str]:
        without_code = re.sub(r"`[^`\n]*`", "", self.prose)
        return re.findall(r"\]\(([^)\s]+)\)", without_code)

    def blocks(self) -> Iterator[Block]:
        fence = r"^(?: *<!-- (.*) -->\n)? *```(.*)\n((?:.*\n)*?) *```$"
        for match in re.finditer(fence, self.text, re.MULTILINE):
            line = self.text.count("\n", 0, match.start(2)) + 1
            yield Block(self.file, line, info=match[2].strip(), text=dedent(match[3]), mark=match[1] or "")

    def tables(self) -> Iterator[list[dict[str, str]]]:
        """Every table, as rows by the names of their columns."""
        for match in re.finditer(r"^\|.*\|\n\|[-| :]+\|\n((?:\|.*\|\n?)*)", self.prose, re.MULTILINE):
            heading, _, *rows = (
                [cell.strip() for cell in row[1:-1].split(" |")] for row in match[0].splitlines()
            )
            yield [dict(zip(heading, row, strict=True)) for row in rows]

    def table(self, *columns: str) -> list[dict[str, str]]:
        """The rows of all tables that begin with these columns; there must be one."""
        found = [rows for rows in self.tables() if rows and tuple(rows[0])[: len(columns)] == columns]
        assert found, f"{self} has no table {columns}"
        return [row for rows in found for row in rows]


def code(cell: str) -> list[str]:
    """What a cell has in backticks."""
    return re.findall(r"`([^`]*)`", cell)


PAGES = [Page(file) for file in text_files(".md")]
