"""Cards whose texts want to be more than text, look like others, or have no room."""

import json
from pathlib import Path
from typing import Any

from drakkar.fleet.testkit import make_card
from drakkar_filesystem._card_file import file_name

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</td></tr></table><script>alert(2)</script>",
    "</script><script>alert(3)</script>",
    "</bdi></a><a href=javascript:alert(4)>",
    '" onmouseover="alert(5)" \'',
    "&lt;b&gt; &amp; &#106;avascript:",
    "\u202egnp.exe\u2066\u2067\u061c",
    "<!--",
    "{{ 7 * 7 }} ${7 * 7}",
    "line\u2028and\u2029paragraph",
    "__proto__",
    "data: x\n\nevent: workers",
]
NO_LINKS = [
    "javascript:alert(1)",
    " javascript:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "//10.0.0.1/",
    "/api",
    "ftp://10.0.0.1/",
    "http:javascript:alert(1)",
    "http://[",
    "http://127.0.0.1:8080@10.0.0.1/",
]
ALIKE = {
    "twin": "twin",
    "twin\u200b": "twin\\u200b",
    "twi\u2060n": "twi\\u2060n",
    "tw\u3164in": "tw\\u3164in",
    "t\u00adwin": "t\\u00adwin",
    "\u202dtwin": "\\u202dtwin",
    "twin\ufe0f\ufe0f": "twin\\ufe0f\\ufe0f",
    "\u2800\u2800twin": "\\u2800\\u2800twin",
    "tw\u034f\u034fin": "tw\\u034f\\u034fin",
    "twin\u00a0\u00a0\u00a0": "twin\\u00a0\\u00a0\\u00a0",
    "twin\U000e0061\U000e0061\U000e0061\U000e0061": "twin" + 4 * "\\u{e0061}",
    "twin 1": "twin 1",
    "twin  1": "twin \\u00201",
    "   twin": 3 * "\\u0020" + "twin",
    "twin     ": "twin " + 4 * "\\u0020",
    r"twin\u200b": r"twin\\u200b",
    "twi\\\u200bn": r"twi\\\u200bn",
}
"""Names that would look the same as another one of them, and as what each is shown in a page. No two of them
have one file for their cards."""

LONG = "w" * 190
ERROR = "<img src=x onerror=alert(6)> " + "x" * 5000


def hostile_cards() -> list[dict[str, Any]]:
    """One of each; some are refused as cards."""
    hostile = [
        make_card(
            f"{text} {n}",
            cluster=text,
            url=f"http://10.0.0.1/{text}",
            version=text,
            state=text,
            features={"leader_for": [text]},
        )
        for n, text in enumerate(HOSTILE)
    ]
    linkless = [make_card(f"linkless-{n}", url=url) for n, url in enumerate(NO_LINKS)]
    return [*hostile, *linkless, *map(make_card, ALIKE)]


def long_card() -> dict[str, Any]:
    """A card of texts without a place at which a line may break."""
    leads = {"leader_for": ["j" * 150]}
    url = f"http://{LONG}.example.org/"
    return make_card(LONG, cluster="c" * 190, url=url, version="v" * 190, state="s" * 190, features=leads)


def write(folder: Path, *cards: dict[str, Any]) -> None:
    """Put cards into the folder of the provider `filesystem`."""
    folder.mkdir(parents=True, exist_ok=True)
    for card in cards:
        (folder / file_name(card["worker"])).write_text(json.dumps(card))
