--- Read the nonce of a tag before something is stored under it; make one where it is missing.
--
-- KEYS[1]  tag     {cache}:tag:{tag}  string  a nonce; expires after the last entry under it
-- ARGV[1]  ttl_ms  int                milliseconds that an entry stored from now on may live
-- ARGV[2]  random  str                128 random bits
--
-- Safe to re-send: yes, a second copy finds the nonce that the first made
--
-- Returns  nonce
--
-- The time keeps a late copy of this command from making the same nonce twice: that would bring
-- back what was stored under it and invalidated since.
local tag = KEYS[1]
local ttl_ms, random = tonumber(ARGV[1]), ARGV[2]

local nonce = redis.call('GET', tag)
if nonce then
  if redis.call('PTTL', tag) < ttl_ms then
    redis.call('PEXPIRE', tag, ttl_ms)
  end
  return nonce
end
local now = redis.call('TIME')
nonce = random .. ':' .. now[1] .. '.' .. now[2]
redis.call('SET', tag, nonce, 'PX', ttl_ms)
return nonce
