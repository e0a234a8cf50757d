--- Take the lock if it is free and nobody is queued; take no place.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; expires with the lease
-- KEYS[2]  fence         {name}:fence  hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone   zset    attempts withdrawn, by time; two minutes
-- KEYS[4]  queue         {name}:queue  stream  one entry per waiter
-- ARGV[1]  owner         str           who asks
-- ARGV[2]  attempt       str           128 random bits, made before the first send
-- ARGV[3]  lease_ms      int           lease, milliseconds
-- ARGV[4]  retention_ms  int           how long the fence record outlives its last use, milliseconds
--
-- Safe to re-send: yes, the attempt is granted once and confirmed after that
--
-- Returns  {1, token, 0}  granted, or already this attempt's, its lease set anew
--          {0}            held by another, or somebody is queued
--          {2}            this attempt was withdrawn
--
-- @include "fence"
-- @include "grant"
local lock, fence, gone, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, attempt, lease_ms, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local held = redis.call('GET', lock)
if held then
  local stem = owner .. ':' .. attempt .. ':'
  if string.sub(held, 1, #stem) ~= stem then
    return {0}
  end
  redis.call('PEXPIRE', lock, math.max(lease_ms, redis.call('PTTL', lock)))
  return {1, string.sub(held, #stem + 1), 0}
end
if redis.call('ZSCORE', gone, attempt) then
  return {2}
end
if redis.call('EXISTS', queue) == 1 then
  return {0}
end
return {1, grant_lock(lock, fence, owner, attempt, lease_ms, retention_ms), 0}
