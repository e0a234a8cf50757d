--- Extend a lease that is still ours; never create one, never shorten one.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; expires with the lease
-- KEYS[2]  fence         {name}:fence  hash    last, open, lapsed, floor
-- ARGV[1]  owner         str           who holds
-- ARGV[2]  attempt       str           the attempt that was granted
-- ARGV[3]  token         int           the token it was granted with
-- ARGV[4]  ttl_ms        int           the lease from now on, milliseconds
-- ARGV[5]  retention_ms  int           how long the fence record outlives its last use, milliseconds
--
-- Safe to re-send: yes, a second copy extends a little further
--
-- Returns  {1, pttl}  renewed; milliseconds left
--          {0}        LOST
--
-- @include "fence"
-- @include "restore"
local lock, fence = KEYS[1], KEYS[2]
local owner, attempt, token = ARGV[1], ARGV[2], tonumber(ARGV[3])
local ttl_ms, retention_ms = tonumber(ARGV[4]), tonumber(ARGV[5])

local number = digits(token)
if redis.call('GET', lock) ~= owner .. ':' .. attempt .. ':' .. number then
  return {0}
end
local left = math.max(ttl_ms, redis.call('PTTL', lock))
redis.call('PEXPIRE', lock, left)
restore_fence(fence, token, number, retention_ms + left)
return {1, left}
