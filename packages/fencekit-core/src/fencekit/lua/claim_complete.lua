--- End a running attempt as done, and keep its memo.
--
-- KEYS[1]  idem       {name}:idem  hash  the idempotency record, see include/claim.lua; its key is also
--                                   the channel where waiters are woken
-- ARGV[1]  owner      str          who completes
-- ARGV[2]  attempt    str          the attempt that was begun
-- ARGV[3]  ttl_ms     int          how long the memo is kept from now, milliseconds
-- ARGV[4]  encoding   str          how the result is encoded, or why there is none
-- ARGV[5]  result     bytes        the memo; empty where there is none
-- ARGV[6]  published  bytes        for Celery: what has been published with it; may be empty
--
-- Safe to re-send: yes, a second copy finds the attempt among the ended and changes nothing
--
-- Returns  {1}              done now; also after the lease was over, if nobody reclaimed it
--          {2}              done before, by this attempt
--          {0, how, state}  not applied: how the attempt ended, and the record's state; either empty
--
-- @include "claim"
-- @include "complete"
local idem = KEYS[1]
local owner, attempt, ttl_ms, encoding, result = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local published = ARGV[6]

local over = complete(idem, owner, attempt, ttl_ms, encoding, result)
if over then
  return over
end
if published ~= '' then
  redis.call('HSET', idem, 'published', published)
end
return {1}
