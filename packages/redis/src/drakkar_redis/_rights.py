"""Whether the user may run what the scripts run, found out at the start and not at the first publish.

Each command is tried on a key that nobody uses, in a form that changes nothing there or is undone at once.
Only a refusal for want of a right counts: a replica, a server that is full, or one of before version 6, which
has no rights, answers otherwise.
"""

from typing import Any, Final

from drakkar_redis._script import Script

CARDS: Final = (
    *("TIME", "PTTL", "PEXPIRE", "ZREM", "HDEL", "HSET", "HGET", "HGETALL"),
    *("ZADD", "ZRANGE", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE"),
)
LEASES: Final = (
    *("TIME", "PTTL", "PEXPIRE", "EXISTS", "GET", "MGET", "SET", "DEL"),
    *("SREM", "SADD", "SMEMBERS", "SRANDMEMBER"),
)

RIGHTS: Final = Script(
    """
local key, missing = KEYS[1], {}
local tail = {
    TIME = {}, PEXPIRE = {key, 1000}, SET = {key, '', 'XX'}, MGET = {key},
    HSET = {key, 'a', '', 'b'},  -- an odd number: looked at after the rights, and refused
    HGET = {key, 'a'}, HDEL = {key, 'a'}, SREM = {key, 'a'}, SADD = {key, 'a'}, SRANDMEMBER = {key, 1},
    ZADD = {key, 'XX', 1, 'a'}, ZREM = {key, 'a'}, ZRANGE = {key, 0, -1},
    ZRANGEBYSCORE = {key, 0, 1}, ZREMRANGEBYSCORE = {key, 0, 1},
}
for command in string.gmatch(ARGV[1], '%S+') do
    if command ~= 'SADD' or #missing == 0 then  -- which leaves something, so only what can be undone
        local answer = redis.pcall(command, unpack(tail[command] or {key}))
        local reason = type(answer) == 'table' and answer.err or ''
        if string.find(reason, "can't run this", 1, true) or string.find(reason, 'NOPERM', 1, true) then
            missing[#missing + 1] = string.lower(command)
        elseif command == 'SADD' then
            redis.pcall('SREM', key, 'a')
        end
    end
end
return missing
""",
    in_full=True,  # so the right to that is tried out with them
)
"""Key: one that nobody uses. Argument: commands of the above, with spaces between them, since a server that
wants a login takes no more than ten words before it. Returns those that the user may not run."""


def lacking(answer: list[Any]) -> str:
    """What `RIGHTS` returned, as the rule that would grant it; empty when nothing lacks."""
    return " ".join(f"+{command.decode()}" for command in answer)
