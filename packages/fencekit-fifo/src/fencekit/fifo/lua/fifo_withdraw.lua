--- Undo an acquire that is not wanted any more: its place, its offer, its late copies.
--
-- KEYS[1]  lock          {name}:lock     string  owner:attempt:token; deleted if this attempt's
-- KEYS[2]  fence         {name}:fence    hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone     zset    attempts withdrawn, by time; two minutes
-- KEYS[4]  queue         {name}:queue    stream  one entry per waiter: w, c
-- KEYS[5]  tickets       {name}:tickets  hash    attempt -> entry id, place
-- KEYS[6]  members       {name}:members  zset    wake channel -> alive until, milliseconds
-- ARGV[1]  owner         str             who asked
-- ARGV[2]  attempt       str             the attempt to withdraw
-- ARGV[3]  retention_ms  int             how long the fence record outlives its last use, milliseconds
-- ARGV[4]  channel       str             where the caller's process is woken
-- ARGV[5]  offer_ms      int             how long an offer stands, milliseconds
-- ARGV[6]  solo          int             1: one server, so that PUBLISH counts every listener
-- ARGV[7]  name          str             the lock's name, for the message
-- ARGV[8]  bury          int             1: a copy of the acquire may still arrive; refuse it
-- ARGV[9]  wake          str             where waiters of a plain lock are woken
--
-- Safe to re-send: yes, it ends in the same state
--
-- Returns  {1, pttl, holder, now}  the attempt held the lock; who holds it now
--          {0, pttl, holder, now}  it did not
--
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, retention_ms, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local offer_ms, solo, name, bury, wake = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7], ARGV[8] == '1', ARGV[9]

local now_us = server_now()
local mine = free_from(lock, fence, owner .. ':' .. attempt, retention_ms)
leave(queue, tickets, members, attempt)
if bury then
  bury_attempt(gone, attempt)
end
advance(lock, fence, queue, tickets, members,
  {channel = channel, offer_ms = offer_ms, retention_ms = retention_ms, solo = solo, name = name}, now_us)
if mine and redis.call('EXISTS', lock) == 0 then
  redis.pcall('PUBLISH', wake, 'free')
end
local pttl, holder, now = holder_now(lock, now_us)
return {mine and 1 or 0, pttl, holder, now}
