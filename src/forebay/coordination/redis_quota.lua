-- One exchange of quotas: all or none for each reservation, in the server's time.
-- KEYS: the buckets, then the processes present.
-- ARGV: number of buckets, lease share, seconds a process counts, its name or "";
--       by bucket: rate, burst, charge, extra, unit;
--       by reservation: number of pairs, then bucket (from 1) and amount of each.
-- A bucket is "level at burst"; one that is full equals none and has no key.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local count, share = tonumber(ARGV[1]), tonumber(ARGV[2])
local said, level, before = {}, {}, {}
local at = 5
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
return { present, answer, refusals }
