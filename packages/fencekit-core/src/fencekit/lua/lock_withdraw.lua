--- Undo an acquire whose outcome is not wanted or not known, and refuse its late copies.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; deleted if this attempt's
-- KEYS[2]  fence         {name}:fence  hash    last, open, lapsed, floor
-- KEYS[3]  gone          {name}:gone   zset    attempts withdrawn, by time; two minutes
-- ARGV[1]  owner         str           who asked
-- ARGV[2]  attempt       str           the attempt to withdraw
-- ARGV[3]  retention_ms  int           how long the fence record outlives its last use, milliseconds
-- ARGV[4]  channel       str           where waiters are woken
--
-- Safe to re-send: yes, it ends in the same state
--
-- Returns  {1}  the attempt held the lock, which is free now
--          {0}  it did not
--
-- @include "fence"
-- @include "restore"
-- @include "bury"
-- @include "withdraw"
local lock, fence, gone = KEYS[1], KEYS[2], KEYS[3]
local owner, attempt, retention_ms, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

return {withdraw_attempt(lock, fence, gone, owner, attempt, retention_ms, channel) and 1 or 0}
