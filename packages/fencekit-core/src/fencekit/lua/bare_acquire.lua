--- Take a bare lock, on the same key and in the same shape as redis-py's own.
--
-- KEYS[1]  lock     key     string  the attempt; expires with the timeout
-- ARGV[1]  attempt  str     128 random bits, made before the first send
-- ARGV[2]  ttl_ms   int     timeout, milliseconds
--
-- Safe to re-send: yes, the attempt that holds the key is confirmed
--
-- Returns  {1}        taken, or already this attempt's, its timeout set anew
--          {0, pttl}  held by another; milliseconds left, negative where it never expires
local lock = KEYS[1]
local attempt, ttl_ms = ARGV[1], ARGV[2]

local held = redis.call('GET', lock)
if held and held ~= attempt then
  return {0, redis.call('PTTL', lock)}
end
redis.call('SET', lock, attempt, 'PX', ttl_ms)
return {1}
