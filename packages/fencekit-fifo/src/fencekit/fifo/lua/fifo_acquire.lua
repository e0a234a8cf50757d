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
-- ARGV[5]  channel       str             where the caller's process is woken
-- ARGV[6]  offer_ms      int             how long an offer stands, milliseconds
-- ARGV[7]  alive_ms      int             how long a process counts as alive after its last word
-- ARGV[8]  solo          int             1: one server, so that PUBLISH counts every listener
-- ARGV[9]  name          str             the lock's name, for the message
-- ARGV[10]  queues       int             1: take a place if it is not granted; 0: only look
--
-- Safe to re-send: yes, the attempt has one place, is granted once, and confirmed after that
--
-- Returns  {1, token, before, now}                  granted, or already this attempt's, its lease set
--                                                   anew; how many were queued before it
--          {0, pttl, holder, now, before, revived}  not granted. before: -1 where it has no place;
--                                                   revived: 1 if the process counted as dead
--          {2}                                      this attempt was withdrawn
--
-- @include "fence"
-- @include "restore"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, lease_ms, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local channel, offer_ms, alive_ms = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local solo, name, queues = ARGV[8] == '1', ARGV[9], ARGV[10] == '1'

local waiter, now_us = owner .. ':' .. attempt, server_now()

-- The lock is this attempt's: give it the whole lease, which a late copy must not shorten.
local function confirm(token)
  local _, before = place_of(queue, tickets, waiter, attempt)
  redis.call('PEXPIRE', lock, math.max(lease_ms, redis.call('PTTL', lock)))
  leave(queue, tickets, members, attempt)
  return {1, token, before or 0, digits(now_us)}
end

local function held_by_me()
  local held = redis.call('GET', lock)
  return held and string.sub(held, 1, #waiter + 1) == waiter .. ':' and string.sub(held, #waiter + 2)
end

local token = held_by_me()
if token then
  return confirm(token)
end
if redis.call('ZSCORE', gone, attempt) then
  return {2}
end
if redis.call('EXISTS', lock, queue) == 0 then
  return {1, grant_lock(lock, fence, owner, attempt, lease_ms, retention_ms), 0, digits(now_us)}
end

local before, revived = -1, false
if queues then
  before = enqueue(queue, tickets, waiter, attempt, channel, alive_ms)
  revived = greet(queue, tickets, members, channel, alive_ms, now_us)
end
advance(lock, fence, queue, tickets, members,
  {channel = channel, offer_ms = offer_ms, retention_ms = retention_ms, solo = solo, name = name}, now_us)
token = held_by_me()
if token then
  return confirm(token)
end
if not queues and redis.call('EXISTS', lock, queue) == 0 then
  -- Whoever was queued is dead.
  return {1, grant_lock(lock, fence, owner, attempt, lease_ms, retention_ms), 0, digits(now_us)}
end
local pttl, holder, now = holder_now(lock, now_us)
return {0, pttl, holder, now, before, revived and 1 or 0}
