--- Set the timeout of a bare lock anew, if it is still this attempt's.
--
-- KEYS[1]  lock     key  string  the attempt; expires with the timeout
-- ARGV[1]  attempt  str  the attempt that was granted
-- ARGV[2]  ttl_ms   int  timeout from now on, milliseconds
--
-- Safe to re-send: yes, a second copy extends a little further
--
-- Returns  {1}  extended
--          {0}  not this attempt's any more
local lock = KEYS[1]
local attempt, ttl_ms = ARGV[1], ARGV[2]

if redis.call('GET', lock) ~= attempt then
  return {0}
end
redis.call('PEXPIRE', lock, ttl_ms)
return {1}
