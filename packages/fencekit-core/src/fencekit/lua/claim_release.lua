--- End a running attempt without counting it, so that another may begin at once.
--
-- KEYS[1]  idem     {name}:idem  hash  the idempotency record, see include/claim.lua; its key is also
--                                   the channel where waiters are woken
-- ARGV[1]  owner    str          who gives it back
-- ARGV[2]  attempt  str          the attempt that was begun
-- ARGV[3]  ttl_ms   int          how long the record lives at least, milliseconds
--
-- Safe to re-send: yes, a second copy finds the attempt among the ended and changes nothing
--
-- Returns  {1}              given back now
--          {2}              given back before, by this attempt
--          {0, how, state}  not applied: how the attempt ended, and the record's state; either empty
--
-- @include "claim"
local idem = KEYS[1]
local owner, attempt, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

local running, r = read_claim(idem, owner, attempt)
if not running then
  return how_ended(r[6], attempt) == 'r' and {2} or not_running(r, attempt)
end
live_at_least(idem, ttl_ms)
redis.call('HSET', idem, 'state', 'retryable', 'attempts', math.max(tonumber(r[4]) - 1, 0),
  'last', r[5] + 1, 'open', 0, 'ended', with_ended(r[6], attempt, 'r'))
redis.pcall('PUBLISH', idem, 'free')
return {1}
