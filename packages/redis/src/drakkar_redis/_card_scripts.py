"""What the server does with cards. Time is the server's, in milliseconds."""

from typing import Final

from drakkar.fleet.card import MAX_CARD_BYTES

from drakkar_redis._script import Script

_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

_KEEP: Final = """
for _, key in ipairs(KEYS) do  -- nothing stays of a fleet that is gone
    if redis.call('PTTL', key) < keep_ms then redis.call('PEXPIRE', key, keep_ms) end
end
"""

PUBLISH: Final = Script(
    _NOW
    + """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[1])
local keep_ms = tonumber(ARGV[3])
"""
    + _KEEP
)
"""Keys: cards, published. Arguments: worker, card, how long to keep it in milliseconds."""

LIST: Final = Script(
    _NOW
    + f"""
local keep_ms = tonumber(ARGV[1])
local too_old = '(' .. string.format('%.0f', now - keep_ms)
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', too_old)
for at = 1, #old, 1000 do
    redis.call('HDEL', KEYS[1], unpack(old, at, math.min(at + 999, #old)))
end
if #old > 0 then redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', too_old) end
local times, undated = {{}}, {{}}
local published = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for at = 1, #published, 2 do
    local name, time = published[at], tonumber(published[at + 1])
    if time and time <= now + 1 then times[name] = time else undated[#undated + 1] = name end
end
local index, blob = {{}}, {{}}
local cards = redis.call('HGETALL', KEYS[1])
for at = 1, #cards, 2 do
    local name, body, size, age = cards[at], cards[at + 1], #cards[at + 1], -1
    local time = times[name]
    if time then
        age = math.max(0, now - math.floor(time))
        if time % 1 > 0 then age = -1 - age end
    else
        undated[#undated + 1] = name
    end
    if #name > {MAX_CARD_BYTES} or size > {MAX_CARD_BYTES} then  -- no card, and not sent
        name, body, size = string.sub(name, 1, 200), '', -1
    end
    index[#index + 1] = string.format('%.0f %d %d', age, #name, size)
    blob[#blob + 1] = name
    blob[#blob + 1] = body
end
if #undated > 0 then
    for _, name in ipairs(undated) do  -- a server that is full refuses it, which is no reason not to list
        redis.pcall('ZADD', KEYS[2], string.format('%.0f.5', now), name)
    end
    {_KEEP}
end
return {{table.concat(index, '\\n'), table.concat(blob)}}
"""
)
"""Keys: cards, published. Argument: the age from which a card is deleted, in milliseconds.

A score that is missing or lies in the future tells no age: the clock was set back, or somebody wrote there by
hand. It becomes the present moment and half a millisecond, which means: published at some time before.

Returns two texts, since to take a reply of thousands of parts apart would hold up the event loop: a line for
each card with its age (below 0: unknown; -1 minus what it is at least), the size of its name and its own size
(-1: too large); and all names and cards in that order, one after the other."""

WITHDRAW: Final = Script(
    """
local body = redis.call('HGET', KEYS[1], ARGV[1])
local sound, card = pcall(cjson.decode, body or '')
if sound and type(card) == 'table' and card.instance == ARGV[2] then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('ZREM', KEYS[2], ARGV[1])
end
"""
)
"""Keys: cards, published. Arguments: worker, instance."""
