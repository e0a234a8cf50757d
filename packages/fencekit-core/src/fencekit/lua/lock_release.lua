--- Give the lock back, and say whether it was still ours.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; deleted
-- KEYS[2]  fence         {name}:fence  hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone   zset    attempts withdrawn, by time; two minutes
-- ARGV[1]  owner         str           who holds
-- ARGV[2]  attempt       str           the attempt that was granted
-- ARGV[3]  token         int           the token it was granted with
-- ARGV[4]  retention_ms  int           how long the fence record outlives its last use, milliseconds
-- ARGV[5]  bury          int           1: the acquire was sent more than once; refuse a late copy
-- ARGV[6]  channel       str           where waiters are woken
--
-- Safe to re-send: yes, the verdict is read from the record and stays true
--
-- Returns  {1}  RELEASED now
--          {2}  RELEASED before: a repeated command
--          {0}  LOST: the lease ended, was forced, or the record does not know this token
local lock, fence, gone = KEYS[1], KEYS[2], KEYS[3]
local owner, attempt, token, retention_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local bury, channel = ARGV[5] == '1', ARGV[6]

local ours = redis.call('GET', lock) == owner .. ':' .. attempt .. ':' .. token
if ours then
  redis.call('DEL', lock)
  redis.pcall('PUBLISH', channel, 'free')
  local known = redis.pcall('HMGET', fence, 'last', 'floor')
  if not bury and known[1] == token and tonumber(known[2] or 0) < tonumber(token) then
    -- As it nearly always is: the record's newest token, and everything else in it stands. Its life
    -- is counted from the end of the lease already.
    redis.pcall('HSET', fence, 'open', '0')
    return {1}
  end
end

-- What is rare stands behind its includes: every call makes their functions anew.
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "withdraw"
token = tonumber(token)
if ours then
  -- It was ours and is free: a record that may not be written changes nothing about the verdict.
  pcall(restore_fence, fence, token, '0', retention_ms)
  if bury then
    bury_attempt(gone, attempt)
  end
  return {1}
end
local last, open, lapsed, floor = read_fence(fence)
if bury then
  -- When the lease ended, a late copy may have been granted the lock anew: it is nobody's.
  withdraw_attempt(lock, fence, gone, owner, attempt, retention_ms, channel)
end
return {was_released(last, open, lapsed, floor, token) and 2 or 0}
