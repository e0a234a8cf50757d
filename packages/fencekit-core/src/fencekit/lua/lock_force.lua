--- Free the lock of one holder and shut that holder out.
--
-- KEYS[1]  lock          {name}:lock   string  owner:attempt:token; deleted if it has the token
-- KEYS[2]  fence         {name}:fence  hash    last rises; open stays, so that the holder's verdict is LOST
-- ARGV[1]  token         int           the token that was read; a newer holder is left alone
-- ARGV[2]  retention_ms  int           how long the fence record outlives its last use, milliseconds
-- ARGV[3]  channel       str           where waiters are woken
--
-- Safe to re-send: yes, a second copy finds in the record what the first has done
--
-- Returns  {1}  freed, now or by an earlier copy
--          {0}  not held with that token any more
--
-- @include "fence"
local lock, fence = KEYS[1], KEYS[2]
local token, retention_ms, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local held = redis.call('GET', lock)
local last, open, lapsed, floor = read_fence(fence)
if not held or tonumber(string.match(held, ':(%d+)$')) ~= token then
  -- Not given back, and shut out: that is what an earlier copy leaves.
  return {last and last > token and (open == token or has_lapsed(lapsed, token)) and 1 or 0}
end
redis.call('DEL', lock)
redis.pcall('PUBLISH', channel, 'free')
redis.call('HSET', fence,
  'last', digits(next_token(math.max(last or 0, token))),
  'open', digits(token), 'lapsed', lapsed, 'floor', digits(last and floor or token))
redis.call('PEXPIRE', fence, math.max(retention_ms, redis.call('PTTL', fence)))
return {1}
