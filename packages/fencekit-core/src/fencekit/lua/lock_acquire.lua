--- Take the lock if it is free, and mint the next fencing token.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; expires with the lease
-- KEYS[2]  fence         {name}:fence  hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone   zset    attempts withdrawn, by time; two minutes
-- ARGV[1]  owner         str           who holds
-- ARGV[2]  attempt       str           128 random bits, made before the first send
-- ARGV[3]  ttl_ms        int           lease, milliseconds
-- ARGV[4]  retention_ms  int           how long the fence record outlives its last use, milliseconds
--
-- Safe to re-send: yes, the attempt is granted once and confirmed after that
--
-- Returns  {1, token}         granted, or already this attempt's, its lease set anew
--          {0, pttl, holder}  held by another; milliseconds left of the lease
--          {2}                this attempt was withdrawn: a late copy is granted nothing
--
-- @include "fence"
-- @include "grant"
local lock, fence, gone = KEYS[1], KEYS[2], KEYS[3]
local owner, attempt, ttl_ms, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local held = redis.call('GET', lock)
if held then
  local holder, whose, token = string.match(held, '^([^:]*):([^:]*):(%d+)$')
  if holder == owner and whose == attempt then
    -- A write, so that WAIT has something to wait for; a late copy must not shorten what the
    -- holder has extended since.
    redis.call('PEXPIRE', lock, math.max(ttl_ms, redis.call('PTTL', lock)))
    return {1, token}
  end
  return {0, redis.call('PTTL', lock), holder or held}
end
if redis.call('ZSCORE', gone, attempt) then
  return {2}
end
return {1, grant_lock(lock, fence, owner, attempt, ttl_ms, retention_ms)}
