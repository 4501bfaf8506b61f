-- One exchange of quotas: all or none for each reservation, in the server's time.
-- KEYS: the buckets, the processes present, the tenants whose places at work are told.
-- ARGV: number of buckets, lease share, seconds a process counts, its name or "", its call's number;
--       by tenant: places, held, wanted, extra;
--       by bucket: rate, burst, charge, extra, unit;
--       by reservation: number of pairs, then bucket (from 1) and amount of each.
-- A bucket is "level at burst"; one that is full equals none and has no key.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local count, share = tonumber(ARGV[1]), tonumber(ARGV[2])
local said, level, before, untaken = {}, {}, {}, {}
local at = 6
local places = {}
for i = count + 2, #KEYS do
    local most, held = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local wanted, extra = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    at = at + 4
    -- By process "held number since"; what is no such thing is as if it were lost.
    local kept = redis.pcall('HGETALL', KEYS[i])
    if kept.err then
        redis.call('DEL', KEYS[i])
        kept = {}
    end
    local free, late = most - held, false
    for j = 1, #kept, 2 do
        local n, number, since = string.match(kept[j + 1], '^(%d+) (%d+) (%S+)$')
        since = tonumber(since or '')
        if not since or since > now or now - since >= tonumber(ARGV[3]) then
            redis.call('HDEL', KEYS[i], kept[j])
        elseif kept[j] == ARGV[4] then
            late = tonumber(number) >= tonumber(ARGV[5])
        else
            free = free - tonumber(n)
        end
    end
    local given = 0
    if late then
        free = 0
    else
        free = math.max(0, free)
        given = math.min(wanted, free)
        given = given + math.min(extra, math.floor((free - given) * share))
        local value = string.format('%.0f %s %.17g', held + given, ARGV[5], now)
        redis.call('HSET', KEYS[i], ARGV[4], value)
        redis.call('PEXPIRE', KEYS[i], math.ceil(tonumber(ARGV[3]) * 1000))
    end
    places[#places + 1] = given
    places[#places + 1] = free - given
end
for i = 1, count do
    local rate, burst = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    said[i] = { rate = rate, burst = burst, extra = tonumber(ARGV[at + 3]), unit = tonumber(ARGV[at + 4]) }
    local charge = tonumber(ARGV[at + 2])
    at = at + 5
    local kept, found = redis.pcall('GET', KEYS[i]), burst
    before[i] = kept
    -- What is no bucket is as if it were lost, whoever wrote it: it is written anew below.
    local old, since, size = string.match(type(kept) == 'string' and kept or '', '^(%S+) (%S+) (%S+)$')
    old, since, size = tonumber(old or ''), tonumber(since or ''), tonumber(size or '')
    if old and since and size then
        -- Under another limit what was used stays used.
        found = math.min(burst, old + math.max(0, now - since) * rate + burst - size)
        if found ~= found then found = burst end
    end
    level[i] = math.max(-burst, math.min(burst, found - charge))
    untaken[i] = math.max(0, charge - found - burst)
end
local refusals = {}
while at <= #ARGV do
    local pairs_end = at + 2 * tonumber(ARGV[at])
    local worst, worst_s = 0, 0
    for j = at + 1, pairs_end, 2 do
        local i, amount = tonumber(ARGV[j]), tonumber(ARGV[j + 1])
        local wait = (amount - level[i]) / said[i].rate
        if amount > said[i].burst then wait = math.huge end
        if wait > worst_s then worst, worst_s = i, wait end
    end
    if worst == 0 then
        for j = at + 1, pairs_end, 2 do
            local i = tonumber(ARGV[j])
            level[i] = level[i] - tonumber(ARGV[j + 1])
        end
    end
    refusals[#refusals + 1] = worst
    refusals[#refusals + 1] = string.format('%.17g', worst_s)
    at = pairs_end + 1
end
local answer = {}
for i = 1, count do
    local it = said[i]
    local lent = math.min(it.extra, level[i] * share)
    if lent <= 0 or lent < it.unit then lent = 0 end
    level[i] = level[i] - lent
    answer[#answer + 1] = string.format('%.17g', level[i])
    answer[#answer + 1] = string.format('%.17g', lent)
    answer[#answer + 1] = string.format('%.17g', untaken[i])
    if level[i] < it.burst then
        local full_ms = math.ceil((it.burst - level[i]) / it.rate * 1000) + 1000
        local value = string.format('%.17g %.17g %.17g', level[i], now, it.burst)
        redis.call('SET', KEYS[i], value, 'PX', string.format('%.0f', math.min(full_ms, 1e15)))
    elseif before[i] then
        redis.call('DEL', KEYS[i])
    end
end
local present = 0
if ARGV[4] ~= '' then
    local seconds, names = tonumber(ARGV[3]), KEYS[count + 1]
    if type(redis.pcall('ZADD', names, now, ARGV[4])) == 'table' then
        redis.call('DEL', names)
        redis.call('ZADD', names, now, ARGV[4])
    end
    redis.call('ZREMRANGEBYSCORE', names, '-inf', now - seconds)
    -- Of a time before the clock was set back; who lives says so again in a moment.
    redis.call('ZREMRANGEBYSCORE', names, '(' .. string.format('%.17g', now), '+inf')
    redis.call('PEXPIRE', names, math.ceil(seconds * 1000))
    present = redis.call('ZCARD', names)
end
return { present, answer, refusals, places }
