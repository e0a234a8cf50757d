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
-- ARGV[5]  turn          str             what the caller's process says of itself: include/queue
-- ARGV[6]  bury          int             1: the acquire was sent more than once; refuse a late copy
--
-- Safe to re-send: yes, the verdict is read from the record and stays true
--
-- Returns  {1, pttl, holder, now, own}  RELEASED now; who holds the lock now
--          {2, pttl, holder, now, own}  RELEASED before: a repeated command
--          {0, pttl, holder, now, own}  LOST: the lease ended, was forced, or the record does not know
--                                       this token
--          {verdict}                    and nobody is queued
--
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, token, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local turn, bury = read_turn(ARGV[5]), ARGV[6] == '1'

local verdict, waiter, held = 1, owner .. ':' .. attempt, redis.call('GET', lock)
local queued, given_back = redis.call('EXISTS', queue) == 1, nil
local freed = held == waiter .. ':' .. digits(token)
if freed then
  redis.call('DEL', lock)
  held = false
  if queued then
    given_back = token
  else
    restore_fence(fence, token, '0', retention_ms)
  end
else
  local last, open, lapsed, floor = read_fence(fence)
  verdict = was_released(last, open, lapsed, floor, token) and 2 or 0
end
if bury then
  -- When the lease ended, a late copy may have been granted the lock anew: it is nobody's.
  if free_from(lock, fence, waiter, retention_ms) then
    freed, held = true, false
  end
  bury_attempt(gone, attempt)
end
local pttl, holder, now, own
if queued then
  leave(queue, tickets, members, attempt)
  pttl, holder, now, own = advance(
    lock, fence, queue, tickets, members, turn, retention_ms, server_now(), held, given_back)
end
if freed and (holder or '') == '' then
  redis.pcall('PUBLISH', turn.wake, 'free')
end
return {verdict, pttl, holder, now, own}
