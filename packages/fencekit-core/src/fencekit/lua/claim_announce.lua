--- End a running attempt as done, keep its memo, and announce it: set a key and tell its readers.
--
-- KEYS[1]  idem       {name}:idem  hash    the idempotency record, see include/claim.lua; its key is also
--                                     the channel where waiters are woken
-- KEYS[2]  notice     notice       string  what is announced; also the channel where its readers are
--                                     told. Of any name, and so not for a cluster
-- ARGV[1]  owner      str          who completes
-- ARGV[2]  attempt    str          the attempt that was begun
-- ARGV[3]  ttl_ms     int          how long the memo is kept from now, milliseconds
-- ARGV[4]  encoding   str          how the result is encoded, or why there is none
-- ARGV[5]  result     bytes        the memo; empty where there is none
-- ARGV[6]  published  bytes        what is noted in the record once it is announced; may be empty
-- ARGV[7]  text       bytes        what is announced
-- ARGV[8]  notice_ms  int          how long it can be read, milliseconds; 0: for ever
-- ARGV[9]  spared     bytes        what stands there and has this in it is left alone; empty: whatever
--                                  stands there
--
-- Safe to re-send: yes, a second copy finds the attempt among the ended and changes nothing
--
-- Returns  {1, 1}           done now, and announced
--          {1, 0}           done now; the server would not have it announced
--          {1, 2}           done now, and not announced: what stood there was spared
--          {2}              done before, by this attempt; whether it was announced is not known
--          {0, how, state}  not applied: how the attempt ended, and the record's state; either empty
--
-- @include "claim"
-- @include "complete"
local idem, notice = KEYS[1], KEYS[2]
local owner, attempt, ttl_ms, encoding, result = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local published, text, notice_ms, spared = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9]

local over = complete(idem, owner, attempt, ttl_ms, encoding, result)
if over then
  return over
end
local stands = redis.pcall('GET', notice)
if stands and (stands.err or string.find(stands, spared, 1, true)) then
  return {1, 2}
end
-- What is done stays done where this is not allowed: who asked announces it in another way.
local set = notice_ms > 0 and redis.pcall('SET', notice, text, 'PX', notice_ms) or redis.pcall('SET', notice, text)
if set.err then
  return {1, 0}
end
if published ~= '' then
  redis.call('HSET', idem, 'published', published)
end
redis.pcall('PUBLISH', notice, text)
return {1, 1}
