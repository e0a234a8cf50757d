--- Undo a begin whose outcome is not wanted or not known, and refuse its late copies.
--
-- KEYS[1]  idem     {name}:idem  hash  the idempotency record, see include/claim.lua; its key is also
--                                   the channel where waiters are woken
-- ARGV[1]  owner    str          who asked
-- ARGV[2]  attempt  str          the attempt to withdraw
--
-- Safe to re-send: yes, it ends in the same state
--
-- Returns  {1}  the attempt was running; it is given back, uncounted
--          {0}  it was not
--
-- @include "claim"
local idem = KEYS[1]
local owner, attempt = ARGV[1], ARGV[2]

local running, r = read_claim(idem, owner, attempt)
if how_ended(r[6], attempt) then
  return {0}
end
local ended = with_ended(r[6], attempt, 'w')
if not running then
  -- A memo is not kept longer for this. A missing record is created by the last two lines, and the
  -- first is there because at maxmemory the second is allowed only after it.
  local settled = r[1] == 'done' or r[1] == 'failed' or r[1] == 'exhausted'
  redis.call('HDEL', idem, '')
  redis.call('HSET', idem, 'ended', ended)
  if not settled then
    live_at_least(idem, LATE_MS)
  end
  return {0}
end
live_at_least(idem, LATE_MS)
local attempts = math.max(tonumber(r[4]) - 1, 0)
redis.call('HSET', idem, 'state', 'retryable', 'attempts', attempts,
  'last', r[5] + 1, 'open', 0, 'ended', ended)
if attempts == 0 and not redis.call('HGET', idem, 'error') then
  -- As if it had never been: no payload is on record either.
  redis.call('HDEL', idem, 'state', 'fingerprint', 'owner', 'attempt', 'task_id')
  redis.call('PEXPIRE', idem, LATE_MS)
end
redis.pcall('PUBLISH', idem, 'free')
return {1}
