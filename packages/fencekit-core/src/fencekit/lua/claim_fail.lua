--- End a running attempt as failed: to be tried again, or for good.
--
-- KEYS[1]  idem      {name}:idem  hash  the idempotency record, see include/claim.lua; its key is also
--                                   the channel where waiters are woken
-- ARGV[1]  owner     str          who failed
-- ARGV[2]  attempt   str          the attempt that was begun; it stays counted
-- ARGV[3]  ttl_ms    int          how long the record lives at least, milliseconds
-- ARGV[4]  error     str          what is kept of the error; may be empty
-- ARGV[5]  terminal  int          1: for good
--
-- Safe to re-send: yes, a second copy finds the attempt among the ended and changes nothing
--
-- Returns  {1}              failed now
--          {2}              failed before, by this attempt
--          {0, how, state}  not applied: how the attempt ended, and the record's state; either empty
--
-- @include "claim"
local idem = KEYS[1]
local owner, attempt, ttl_ms, error = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local terminal = ARGV[5] == '1'

local running, r = read_claim(idem, owner, attempt)
if not running then
  return how_ended(r[6], attempt) == 'f' and {2} or not_running(r, attempt)
end
live_at_least(idem, ttl_ms)
redis.call('HSET', idem, 'state', terminal and 'failed' or 'retryable', 'error', error,
  'last', r[5] + 1, 'open', 0, 'ended', with_ended(r[6], attempt, 'f'))
redis.pcall('PUBLISH', idem, 'free')
return {1}
