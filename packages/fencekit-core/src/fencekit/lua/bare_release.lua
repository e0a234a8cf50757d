--- Give a bare lock back, if it is still this attempt's.
--
-- KEYS[1]  lock     key  string  the attempt; deleted
-- ARGV[1]  attempt  str  the attempt that was granted
-- ARGV[2]  channel  str  where waiters of this library are woken
--
-- Safe to re-send: yes, a second copy finds nothing of its own
--
-- Returns  {1}  given back
--          {0}  not this attempt's any more
local lock = KEYS[1]
local attempt, channel = ARGV[1], ARGV[2]

if redis.call('GET', lock) ~= attempt then
  return {0}
end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, 'free')
return {1}
