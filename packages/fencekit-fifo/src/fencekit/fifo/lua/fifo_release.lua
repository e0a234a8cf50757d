--- Give the lock back, offer it to the next in the queue, and say whether it was still ours.
--
-- KEYS[1]  lock          {name}:lock     string  owner:attempt:token; deleted
-- KEYS[2]  fence         {name}:fence    hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone     zset    attempts withdrawn, by time; two minutes
-- KEYS[4]  queue         {name}:queue    stream  one entry per waiter: w, c
-- KEYS[5]  tickets       {name}:tickets  hash    attempt -> entry id, place
-- KEYS[6]  members       {name}:members  zset    wake channel -> alive until, milliseconds
-- ARGV[1]  owner         str             who holds
-- ARGV[2]  attempt       str             the attempt that was granted
-- ARGV[3]  token         int             the token it was granted with
-- ARGV[4]  retention_ms  int             how long the fence record outlives its last use, milliseconds
-- ARGV[5]  channel       str             where the caller's process is woken
-- ARGV[6]  offer_ms      int             how long an offer stands, milliseconds
-- ARGV[7]  solo          int             1: one server, so that PUBLISH counts every listener
-- ARGV[8]  name          str             the lock's name, for the message
-- ARGV[9]  bury          int             1: the acquire was sent more than once; refuse a late copy
-- ARGV[10]  wake         str             where waiters of a plain lock are woken
--
-- Safe to re-send: yes, the verdict is read from the record and stays true
--
-- Returns  {1, pttl, holder, now}  RELEASED now, and who holds the lock now
--          {2, pttl, holder, now}  RELEASED before: a repeated command
--          {0, pttl, holder, now}  LOST: the lease ended, was forced, or the record does not know this token
--
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, token, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local channel, offer_ms, solo, name = ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1', ARGV[8]
local bury, wake = ARGV[9] == '1', ARGV[10]

local now_us, freed, verdict = server_now(), false, nil
if redis.call('GET', lock) == owner .. ':' .. attempt .. ':' .. digits(token) then
  redis.call('DEL', lock)
  restore_fence(fence, token, '0', retention_ms)
  freed, verdict = true, 1
else
  local last, open, lapsed, floor = read_fence(fence)
  verdict = was_released(last, open, lapsed, floor, token) and 2 or 0
end
if bury then
  -- When the lease ended, a late copy may have been granted the lock anew: it is nobody's.
  freed = free_from(lock, fence, owner .. ':' .. attempt, retention_ms) or freed
  bury_attempt(gone, attempt)
end
if redis.call('EXISTS', queue) == 1 then
  leave(queue, tickets, members, attempt)
  advance(lock, fence, queue, tickets, members,
    {channel = channel, offer_ms = offer_ms, retention_ms = retention_ms, solo = solo, name = name}, now_us)
end
if freed and redis.call('EXISTS', lock) == 0 then
  redis.pcall('PUBLISH', wake, 'free')
end
local pttl, holder, now = holder_now(lock, now_us)
return {verdict, pttl, holder, now}
