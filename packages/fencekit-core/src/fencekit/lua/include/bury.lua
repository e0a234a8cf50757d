-- Attempts that may still have a copy under way are kept for two minutes, where an acquire that
-- arrives late is refused.

local GONE_MS = 120000

local function bury_attempt(gone, attempt)
  local now = redis.call('TIME')
  local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
  -- A removal first: it is allowed at maxmemory, and what follows it then is as well.
  redis.call('ZREMRANGEBYSCORE', gone, '-inf', string.format('%.0f', now_ms - GONE_MS))
  redis.call('ZADD', gone, string.format('%.0f', now_ms), attempt)
  redis.call('PEXPIRE', gone, GONE_MS)
end
