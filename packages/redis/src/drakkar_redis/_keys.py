"""The names of everything that a fleet has in Redis."""

from typing import Final
from urllib.parse import quote

from drakkar_redis._script import Script


class Keys:
    """Names under one prefix.

    All begin with the prefix as a hash tag, so that a Cluster keeps them on one server, where a script may
    use them together. Whatever the prefix holds, braces included, is percent-encoded first: no two prefixes
    meet, and none ends the tag early.
    """

    def __init__(self, prefix: str) -> None:
        self.tag: Final = f"{{{quote(prefix, safe='')}}}"
        """What all of them begin with."""

        self.cards: Final = f"{self.tag}:cards"
        """A hash: the card of each worker, by its name."""

        self.published: Final = f"{self.tag}:published"
        """A sorted set: when each worker published last, in milliseconds of the server's clock."""

        self.token: Final = f"{self.tag}:token"
        """The newest fencing token of the whole fleet. Never expires."""

        self.names: Final = f"{self.tag}:leases"
        """A set: the names of leases that somebody may have."""

        self.released: Final = f"{self.tag}:released"
        """The channel on which the name of a lease is told that was given back."""

        self.nothing: Final = f"{self.tag}:nothing"
        """Nobody uses it: rights are tried out on it."""

        self.lease_prefix: Final = f"{self.tag}:lease:"

    def lease(self, name: str) -> str:
        """A string with an expiry: who has the lease of that name."""
        return self.lease_prefix + name


MISTYPED: Final = Script(
    """
local tries = {{'HGET', 'a'}, {'ZRANGE', 0, 0}, {'SRANDMEMBER', 1}}
for at, key in ipairs(KEYS) do
    local answer = redis.pcall(tries[at][1], key, unpack(tries[at], 2))
    local reason = type(answer) == 'table' and answer.err or ''
    if string.find(reason, 'WRONGTYPE', 1, true) then return key end
end
"""
)
"""Keys: a hash, a sorted set and a set, as they should be. Returns the first that is something else."""
