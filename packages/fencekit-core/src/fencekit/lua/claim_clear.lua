--- Forget what is recorded, unless it has changed since it was read.
--
-- KEYS[1]  idem     {name}:idem  hash  the idempotency record, see include/claim.lua; its key is also
--                                   the channel where waiters are woken
-- ARGV[1]  seen     int          the fence that was read with it; it rises at every change
--
-- Safe to re-send: yes, a second copy finds the fence that the first left, or another
--
-- Returns  {1}  forgotten; an attempt that ran is shut out, and so are late copies for two minutes
--          {0}  changed since, or gone
--
-- @include "claim"
local idem, seen = KEYS[1], tonumber(ARGV[1])

local r = redis.call('HMGET', idem, 'state', 'attempt', 'last', 'ended')
local last = tonumber(r[3] or 0)
if not r[1] or last ~= seen then
  return {not r[1] and last == seen + 1 and 1 or 0}
end
local ended = r[4] or ''
if r[1] == 'running' then
  ended = with_ended(ended, r[2], 'k')
end
-- Not deleted and made anew: if a TTL cannot be set, the old one is still there.
redis.call('HDEL', idem, 'state', 'owner', 'attempt', 'attempts', 'began', 'lease_until', 'fingerprint', 'encoding',
  'result', 'published', 'error', 'task_id')
redis.call('HSET', idem, 'last', last + 1, 'open', 0, 'ended', ended)
redis.call('PEXPIRE', idem, LATE_MS)
redis.pcall('PUBLISH', idem, 'free')
return {1}
