--- Take the lock if it is free and nobody is queued, else take or keep a place in the queue.
--
-- KEYS[1]  lock          {name}:lock     string  owner:attempt:token; expires with the lease
-- KEYS[2]  fence         {name}:fence    hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone     zset    attempts withdrawn, by time; two minutes
-- KEYS[4]  queue         {name}:queue    stream  one entry per waiter: w, c
-- KEYS[5]  tickets       {name}:tickets  hash    attempt -> entry id, place
-- KEYS[6]  members       {name}:members  zset    wake channel -> alive until, milliseconds
-- ARGV[1]  owner         str             who asks
-- ARGV[2]  attempt       str             128 random bits, made before the first send
-- ARGV[3]  lease_ms      int             lease, milliseconds
-- ARGV[4]  retention_ms  int             how long the fence record outlives its last use, milliseconds
-- ARGV[5]  turn          str             what the caller's process says of itself: include/queue
-- ARGV[6]  queues        int             1: take a place if it is not granted; 0: only look
--
-- Safe to re-send: yes, the attempt has one place, is granted once, and confirmed after that
--
-- Returns  {1, token, before}                            granted, or already this attempt's, its lease
--                                                        set anew; how many were queued before it
--          {0, pttl, holder, now, own, before, revived}  not granted; who holds the lock now. before: -1
--                                                        where it has no place; revived: 1 if the
--                                                        process was no member: places may be gone
--          {2}                                           this attempt was withdrawn
--
-- @include "fence"
-- @include "restore"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, lease_ms, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local turn, queues = read_turn(ARGV[5]), ARGV[6] == '1'

local waiter, now_us = owner .. ':' .. attempt, server_now()
local stem = waiter .. ':'

local held = redis.call('GET', lock)
if held and string.sub(held, 1, #stem) == stem then
  -- Its own already: the whole lease from now on, which a late copy must not shorten.
  local _, before = place_of(queue, tickets, waiter, attempt)
  redis.call('PEXPIRE', lock, math.max(lease_ms, redis.call('PTTL', lock)))
  leave(queue, tickets, members, attempt)
  return {1, string.sub(held, #stem + 1), before or 0}
end
if redis.call('ZSCORE', gone, attempt) then
  return {2}
end
local before, revived = -1, false
if queues and (held or redis.call('EXISTS', queue) == 1) then
  before = enqueue(queue, tickets, waiter, attempt, turn.channel, turn.alive_ms)
  local alive_until = digits(math.floor(now_us / 1000) + turn.alive_ms)
  revived = redis.call('ZADD', members, alive_until, turn.channel) == 1
  if revived then
    -- Never less: others may live longer, and are dead to everybody once this is gone.
    local whole_ms = turn.alive_ms * LIVE_WINDOWS
    redis.call('PEXPIRE', members, math.max(redis.call('PTTL', members), whole_ms))
  end
end
local pttl, holder, now, own = advance(lock, fence, queue, tickets, members, turn, retention_ms, now_us, held)
if string.sub(holder, 1, #stem) == stem then
  return {1, string.sub(holder, #stem + 1), before}
end
if holder == '' and redis.call('EXISTS', queue) == 0 then
  -- Nobody was queued, or whoever was is dead.
  return {1, grant_lock(lock, fence, owner, attempt, lease_ms, retention_ms), 0}
end
return {0, pttl, holder, now, own, before, revived and 1 or 0}
