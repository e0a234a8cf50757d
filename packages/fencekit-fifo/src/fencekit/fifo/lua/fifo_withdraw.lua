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
-- ARGV[4]  turn          str             what the caller's process says of itself: include/queue
-- ARGV[5]  bury          int             1: a copy of the acquire may still arrive; refuse it
--
-- Safe to re-send: yes, it ends in the same state
--
-- Returns  {1, pttl, holder, now, own}  the attempt held the lock; who holds it now
--          {0, pttl, holder, now, own}  it did not
--
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "grant"
-- @include "queue"
local lock, fence, gone, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, attempt, retention_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local turn, bury = read_turn(ARGV[4]), ARGV[5] == '1'

local mine = free_from(lock, fence, owner .. ':' .. attempt, retention_ms)
leave(queue, tickets, members, attempt)
if bury then
  bury_attempt(gone, attempt)
end
local pttl, holder, now, own =
  advance(lock, fence, queue, tickets, members, turn, retention_ms, server_now(),
    redis.call('GET', lock))
if mine and holder == '' then
  redis.pcall('PUBLISH', turn.wake, 'free')
end
return {mine and 1 or 0, pttl, holder, now, own}
