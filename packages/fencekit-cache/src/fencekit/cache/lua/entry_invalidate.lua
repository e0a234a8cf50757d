--- Remove a cache entry, and end a fill that is under way; keep further fills out for a while.
--
-- KEYS[1]  entry    {entry}       string  header and JSON; deleted
-- KEYS[2]  ticket   {entry}:fill  string  attempt:time of the load that may store, or hold
-- ARGV[1]  hold_ms  int           milliseconds for which nothing may be filled in, or 0
-- ARGV[2]  channel  str           where those who wait for a fill are woken
--
-- Safe to re-send: yes, a second copy invalidates once more
--
-- Returns  {1}  there was an entry
--          {0}  there was none
--
-- @include "entry"
local entry, ticket = KEYS[1], KEYS[2]
local hold_ms, channel = tonumber(ARGV[1]), ARGV[2]

end_fill(ticket, channel)
local gone = redis.call('DEL', entry)
if hold_ms > 0 and redis.call('PTTL', ticket) < hold_ms then
  redis.call('SET', ticket, 'hold', 'PX', hold_ms)
end
return {gone}
