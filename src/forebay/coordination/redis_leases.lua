-- One exchange of versions and leases, in the server's time; the rules: leases.py.
-- KEYS: a hash for each kb: since, seen, version, mark, change, change_at, writer, writer_until, store,
--       and "h:NAME" = "until confirmed".
-- ARGV: holder, lease seconds, "1" when it leaves, seconds a hash is kept;
--       then five counts, each with its words behind it, kbs by place from 1:
--       claims (kb, store, version, mark, "1" when it held), begun (kb, version, change, mark),
--       done (kb, version, change, mark), confirmed (kb, version), asked (kb).
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local holder, lease, leaves, kept_s = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4])
local row = 'h:' .. holder
local exact = function(number) return string.format('%.17g', number) end
-- Somebody set the clock, or nobody spoke of the kb for a while: what was granted ends by a clock
-- that tells nothing of it. It is as if the authority had begun to know of the kb now, except that
-- it remembers the version; a change that is pending gets no more leases beside it.
local quiet_s = 5
local doubt = function(key)
    redis.call('HSET', key, 'since', exact(now))
    if redis.call('HEXISTS', key, 'change') == 1 then
        redis.call('HSET', key, 'change_at', exact(now - lease))
    end
    local fields = redis.call('HGETALL', key)
    for i = 1, #fields, 2 do
        local name, value = fields[i], fields[i + 1]
        if name == 'writer_until' then
            redis.call('HSET', key, name, exact(math.min(tonumber(value), now + lease)))
        elseif string.sub(name, 1, 2) == 'h:' then
            local ends, confirmed = string.match(value, '^(%S+) (%S+)$')
            ends = math.min(tonumber(ends), now + lease)
            redis.call('HSET', key, name, exact(ends) .. ' ' .. confirmed)
        end
    end
end
for i = 1, #KEYS do
    if redis.call('HSETNX', KEYS[i], 'since', exact(now)) == 0 then
        local seen = tonumber(redis.call('HGET', KEYS[i], 'seen') or now)
        if now < seen or now > seen + lease + quiet_s then doubt(KEYS[i]) end
    end
    redis.call('HSET', KEYS[i], 'seen', exact(now))
    redis.call('EXPIRE', KEYS[i], kept_s)
end
local at = 5
local take = function()
    local word = ARGV[at]
    at = at + 1
    return word
end
local writes = function(key) return redis.call('HGET', key, 'writer') == holder end
local raise = function(key, version, mark)
    local known = tonumber(redis.call('HGET', key, 'version') or -1)
    if version > known or (version == known and mark ~= '') then
        redis.call('HSET', key, 'version', exact(version), 'mark', mark)
    end
end
local seats = {}
for _ = 1, tonumber(take()) do
    local key, store, version, mark, held = KEYS[tonumber(take())], take(), tonumber(take()), take(), take() == '1'
    local kb = redis.call('HMGET', key, 'version', 'mark', 'writer', 'writer_until', 'store', 'since')
    local in_force, known = tonumber(kb[1] or -1), kb[2] or ''
    local refusal, ends = '', tonumber(kb[4] or 0)
    if kb[3] ~= holder then
        if kb[3] and now <= ends then
            refusal = 'taken'
        elseif known == '' then
            if not held and now - tonumber(kb[6]) <= lease then refusal = 'young' end
        elseif known == 'gone' then
            if store ~= kb[5] then refusal = 'foreign' end
        elseif version ~= in_force or mark ~= known then
            refusal = 'foreign'
        end
    end
    if refusal == '' then
        ends = math.max(ends, now + lease)
        redis.call('HSET', key, 'writer', holder, 'writer_until', exact(ends), 'store', store)
    end
    seats[#seats + 1] = refusal
    seats[#seats + 1] = exact(in_force)
    seats[#seats + 1] = known
end
for _ = 1, tonumber(take()) do
    local key, version, change, mark = KEYS[tonumber(take())], tonumber(take()), take(), take()
    if writes(key) then
        raise(key, version, mark)
        redis.call('HSET', key, 'change', change, 'change_at', exact(now))
    end
end
for _ = 1, tonumber(take()) do
    local key, version, change, mark = KEYS[tonumber(take())], tonumber(take()), take(), take()
    if writes(key) then
        raise(key, version, mark)
        if redis.call('HGET', key, 'change') == change then redis.call('HDEL', key, 'change') end
    end
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
    if leaves then
        redis.call('HDEL', key, row)
        if writes(key) then redis.call('HDEL', key, 'writer') end
    end
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
return { grants, lowest, seats }
