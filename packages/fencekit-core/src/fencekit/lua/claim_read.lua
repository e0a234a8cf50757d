--- Read an idempotency record.
--
-- KEYS[1]  idem  {name}:idem  hash  the idempotency record, see include/claim.lua
--
-- Safe to re-send: yes, it only reads
-- Read only: yes
--
-- Returns  {state, owner, attempts, left, last, encoding, error, task_id, published, pttl}
--          left: milliseconds left of the lease, 0 if none; each of the others false where there is none
local idem = KEYS[1]

local r = redis.call('HMGET', idem, 'state', 'owner', 'attempts', 'lease_until', 'last', 'encoding', 'error', 'task_id',
  'published')
local left = 0
if r[1] == 'running' then
  local now = redis.call('TIME')
  left = math.max(0, tonumber(r[4] or 0) - tonumber(now[1]) * 1000 - math.floor(tonumber(now[2]) / 1000))
end
return {r[1], r[2], r[3], left, r[5], r[6], r[7], r[8], r[9], redis.call('PTTL', idem)}
