--- Say that a process is alive, advance a free lock, and tell who holds it.
--
-- KEYS[1]  lock          {name}:lock     string  owner:attempt:token; set to offer it
-- KEYS[2]  fence         {name}:fence    hash    last, open, lapsed, floor
-- KEYS[3]  queue         {name}:queue    stream  one entry per waiter: w, c
-- KEYS[4]  tickets       {name}:tickets  hash    attempt -> entry id, place
-- KEYS[5]  members       {name}:members  zset    wake channel -> alive until, milliseconds
-- ARGV[1]  owner         str             the process's oldest waiter, empty where there is none
-- ARGV[2]  attempt       str             its attempt
-- ARGV[3]  retention_ms  int             how long the fence record outlives its last use, milliseconds
-- ARGV[4]  turn          str             what the caller's process says of itself: include/queue
--
-- Safe to re-send: yes, a second copy is a second beat
--
-- Returns  {recheck, pttl, holder, now, own}  who holds the lock now. recheck: 2 if the process was no
--                                             member, so that places may be gone; 1 if its oldest waiter
--                                             has neither place nor lock; else 0
--
-- @include "fence"
-- @include "restore"
-- @include "grant"
-- @include "queue"
local lock, fence, queue, tickets, members = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, attempt, retention_ms, turn = ARGV[1], ARGV[2], tonumber(ARGV[3]), read_turn(ARGV[4])

local now_us, waiter = server_now(), owner .. ':' .. attempt
local revived = greet(queue, tickets, members, turn.channel, turn.alive_ms, now_us)
local pttl, holder, now, own =
  advance(lock, fence, queue, tickets, members, turn, retention_ms, now_us, redis.call('GET', lock))
local missing = owner ~= '' and string.sub(holder, 1, #waiter + 1) ~= waiter .. ':'
  and not place_of(queue, tickets, waiter, attempt)
return {revived and 2 or missing and 1 or 0, pttl, holder, now, own}
