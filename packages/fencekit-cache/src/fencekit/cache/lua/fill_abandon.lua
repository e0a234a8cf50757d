--- Give a ticket back without storing: the load failed, was cancelled, or found nothing to store.
--
-- KEYS[1]  ticket   {entry}:fill  string  attempt:time of the load that may store; deleted
-- ARGV[1]  attempt  str           the attempt it was taken by
-- ARGV[2]  channel  str           where those who wait for a fill are woken
--
-- Safe to re-send: yes, a second copy finds nothing of its own
--
-- Returns  {1}  given back: nothing was invalidated since it was taken
--          {0}  it was not this attempt's any more
local ticket = KEYS[1]
local attempt, channel = ARGV[1], ARGV[2]

local held = redis.call('GET', ticket)
if not held or string.sub(held, 1, #attempt) ~= attempt then
  return {0}
end
redis.call('DEL', ticket)
redis.pcall('PUBLISH', channel, 'free')
return {1}
