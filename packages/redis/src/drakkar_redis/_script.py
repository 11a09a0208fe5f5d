"""A script for the server."""

import hashlib
from typing import Final


class Script:
    """A Lua script. Known to the server by its hash, and sent in full to one that has not seen it; always, if
    `in_full`.

    Its answer comes behind its last argument, which is another one in each call: an answer that is late, or
    comes twice, is not taken for that to the next call.
    """

    def __init__(self, source: str, in_full: bool = False) -> None:
        self.source: Final = f"local function run()\n{source}\nend\nreturn {{ARGV[#ARGV], run()}}"
        self.sha: Final = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self.in_full: Final = in_full
