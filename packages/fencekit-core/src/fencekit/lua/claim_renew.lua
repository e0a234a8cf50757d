--- Extend the lease of a running attempt; never create one, never shorten one.
--
-- KEYS[1]  idem      {name}:idem  hash  the idempotency record, see include/claim.lua
-- ARGV[1]  owner     str          who runs it
-- ARGV[2]  attempt   str          the attempt that was begun
-- ARGV[3]  lease_ms  int          the lease from now on, milliseconds
-- ARGV[4]  ttl_ms    int          how long the record lives at least, milliseconds
--
-- Safe to re-send: yes, a second copy extends a little further
--
-- Returns  {1, left}        renewed; milliseconds left
--          {0, how, state}  lost: how the attempt ended, and the record's state; either empty
--
-- @include "claim"
local idem = KEYS[1]
local owner, attempt, lease_ms, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local running, r = read_claim(idem, owner, attempt)
if not running then
  return not_running(r, attempt)
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local until_now = tonumber(redis.call('HGET', idem, 'lease_until'))
local lease_until = math.max(until_now, now + lease_ms)
live_at_least(idem, math.max(ttl_ms, lease_until - now))
redis.call('HSET', idem, 'lease_until', lease_until)
return {1, lease_until - now}
