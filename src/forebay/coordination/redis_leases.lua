-- One exchange of versions and leases, in the server's time; the rules: leases.py.
-- KEYS: a hash for each kb: since, version, change, change_at, and "h:NAME" = "until confirmed".
-- ARGV: holder, lease seconds, "1" when it leaves, seconds a hash is kept;
--       then four counts, each with its triples or pairs behind it, kbs by place from 1:
--       begun (kb, version, change), done (kb, version, change), confirmed (kb, version), asked (kb).
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local holder, lease, leaves, kept_s = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
local row = 'h:' .. holder
local exact = function(number) return string.format('%.17g', number) end
for i = 1, #KEYS do
    redis.call('HSETNX', KEYS[i], 'since', exact(now))
    redis.call('EXPIRE', KEYS[i], kept_s)
end
local at = 5
local take = function()
    local word = ARGV[at]
    at = at + 1
    return word
end
local raise = function(key, version)
    local known = tonumber(redis.call('HGET', key, 'version') or -1)
    if version > known then redis.call('HSET', key, 'version', exact(version)) end
end
for _ = 1, tonumber(take()) do
    local key, version, change = KEYS[tonumber(take())], tonumber(take()), take()
    raise(key, version)
    redis.call('HSET', key, 'change', change, 'change_at', exact(now))
end
for _ = 1, tonumber(take()) do
    local key, version, change = KEYS[tonumber(take())], tonumber(take()), take()
    raise(key, version)
    if redis.call('HGET', key, 'change') == change then redis.call('HDEL', key, 'change') end
end
local grants = {}
for _ = 1, tonumber(take()) do
    local key, confirmed = KEYS[tonumber(take())], tonumber(take())
    local kb = redis.call('HMGET', key, 'version', 'change', 'change_at', row)
    local version, change = tonumber(kb[1] or -1), kb[2] or ''
    local lasts_until = now + lease
    if change ~= '' then lasts_until = math.min(lasts_until, tonumber(kb[3]) + lease) end
    local lasts = 0
    if version >= 0 and confirmed >= version and lasts_until > now then
        lasts = lasts_until - now
        if kb[4] then
            local before, known = string.match(kb[4], '^(%S+) (%S+)$')
            lasts_until = math.max(lasts_until, tonumber(before))
            confirmed = math.max(confirmed, tonumber(known))
        end
        redis.call('HSET', key, row, exact(lasts_until) .. ' ' .. exact(confirmed))
    end
    grants[#grants + 1] = exact(lasts)
    grants[#grants + 1] = exact(version)
    grants[#grants + 1] = change
end
local lowest = {}
for _ = 1, tonumber(take()) do
    local key = KEYS[tonumber(take())]
    if leaves then redis.call('HDEL', key, row) end
    local found = 9007199254740991
    local since = now
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        local name, value = fields[i], fields[i + 1]
        if name == 'since' then
            since = tonumber(value)
        elseif string.sub(name, 1, 2) == 'h:' then
            local ends, confirmed = string.match(value, '^(%S+) (%S+)$')
            if now > tonumber(ends) then
                redis.call('HDEL', key, name)
            else
                found = math.min(found, tonumber(confirmed))
            end
        end
    end
    if now - since <= lease then found = 0 end
    lowest[#lowest + 1] = exact(found)
end
return { grants, lowest }
