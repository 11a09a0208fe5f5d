"""What the server does with leases. Each script may be repeated: asking twice gets what asking once does.

The record of a lease is `<token>:<granted, in microseconds>:<ttl, in milliseconds>:<holder>`, and its expiry
is the end of the lease. Everything else under its name is garbage.
"""

from typing import Final

from drakkar_redis._script import Script

_NOTE: Final = """
local function note(names, ...)  -- the set of names may have been lost alone, or be of another kind
    local done = redis.pcall('SADD', names, ...)
    if type(done) == 'table' then
        redis.pcall('DEL', names)
        redis.pcall('SADD', names, ...)
    end
end
"""

_READ: Final = """
local function now_us()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end
local function read(key)  -- the token, or false when there is none of ours; then whether there is anything
    local value = redis.pcall('GET', key)
    if value == false then return false, false end
    if type(value) == 'table' then return false, true end
    local token, granted, ttl, holder = string.match(value, '^(%d+):(%d+):(%d+):(.+)$')
    if token and #token > 16 then return false, true end  -- more than any that was ever granted
    return token or false, true, holder, tonumber(ttl), tonumber(granted)
end
"""

ACQUIRE: Final = Script(
    _READ
    + _NOTE
    + """
local key, counter, names = KEYS[1], KEYS[2], KEYS[3]
local me, ttl_ms, name = ARGV[1], ARGV[2], ARGV[3]
local token, taken, holder, record_ms = read(key)
if taken then note(names, name) end
if token and holder == me then
    redis.call('PEXPIRE', key, ttl_ms)
    return {1, token}
end
if taken then
    local longest = tonumber(ttl_ms)
    if token and record_ms <= math.max(longest, 86400000) then longest = record_ms end
    local left = redis.call('PTTL', key)
    if left < 0 or left > longest then  -- somebody edited it: garbage, or without an end
        redis.call('PEXPIRE', key, longest)
        left = longest
    end
    return {0, token or '', holder or '', left}
end
local now = now_us()
local last = redis.pcall('GET', counter)
last = type(last) == 'string' and tonumber(last) or 0
if not (last >= 0 and last < 2^53 - 1) then last = 0 end
local new = string.format('%.0f', math.max(math.floor(last) + 1, now, ARGV[5] + 1))
redis.call('SET', counter, new)
redis.call('SET', key, string.format('%s:%.0f:%s:%s', new, now, ttl_ms, me), 'PX', ttl_ms)
note(names, name)
-- Names of leases that ran out do not pile up.
for _, other in ipairs(redis.pcall('SRANDMEMBER', names, 3)) do
    if redis.call('EXISTS', ARGV[4] .. other) == 0 then redis.call('SREM', names, other) end
end
return {1, new}
"""
)
"""Keys: the lease, token, names. Arguments: holder, ttl in milliseconds, name, what lease keys begin with,
the greatest token that the caller knows of.

Returns 1 and the token, or 0, the token and the holder (empty when they cannot be read) and the milliseconds
that are left. What cannot be read, or has no end, is given one: it goes when nobody has written it anew for
a ttl."""

RENEW: Final = Script(
    _NOTE
    + """
local me, ttl_ms, after, kept = ARGV[1], ARGV[2], #ARGV[3] + 1, {}
for first = 2, #KEYS, 1000 do
    local last, names = math.min(first + 999, #KEYS), {}
    for at, value in ipairs(redis.call('MGET', unpack(KEYS, first, last))) do
        local number = first + at - 1
        local token, holder
        if value then token, holder = string.match(value, '^(%d+):%d+:%d+:(.+)$') end
        if token == ARGV[number + 2] and holder == me then
            redis.call('PEXPIRE', KEYS[number], ttl_ms)
            names[#names + 1] = string.sub(KEYS[number], after)
            kept[#kept + 1] = '1'
        else
            kept[#kept + 1] = '0'
        end
    end
    if #names > 0 then note(KEYS[1], unpack(names)) end
end
return table.concat(kept)
"""
)
"""Keys: names, leases. Arguments: holder, ttl in milliseconds, what lease keys begin with, the token of
each. Returns a 1 for each that was kept and a 0 for each that is not ours."""

RELEASE: Final = Script(
    _READ
    + """
local token, _, holder = read(KEYS[1])
if token and holder == ARGV[1] and (ARGV[2] == '' or ARGV[2] == token) then
    redis.call('DEL', KEYS[1])
    redis.pcall('PUBLISH', ARGV[4], ARGV[3])
    redis.pcall('SREM', KEYS[2], ARGV[3])
end
"""
)
"""Keys: the lease, names. Arguments: holder, token (empty: any), name, channel. That nobody can be told, for
want of a right to, is no reason to keep it."""

LOOK: Final = Script(
    _READ
    + """
local found = {}
for number, key in ipairs(KEYS) do
    local token, taken = read(key)
    found[number] = {token or (taken and '?' or ''), redis.call('PTTL', key)}
end
return found
"""
)
"""Keys: leases. Returns the token of each (empty: nobody has it; ?: garbage) and the milliseconds left."""

LIST: Final = Script(
    _READ
    + """
local now, found = now_us(), {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local key = ARGV[1] .. name
    local token, taken, holder, _, granted = read(key)
    if taken then
        local age_ms = token and math.max(0, math.floor((now - granted) / 1000)) or -1
        found[#found + 1] = {name, token or '', holder or '', age_ms, redis.call('PTTL', key)}
    else
        redis.call('SREM', KEYS[1], name)
    end
end
return found
"""
)
"""Keys: names. Argument: what lease keys begin with. Returns name, token, holder, age and remaining
milliseconds of each; -1 is unknown."""
