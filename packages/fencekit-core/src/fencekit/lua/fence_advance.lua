--- Lift the fence record of a name; never lower it.
--
-- KEYS[1]  fence         {name}:fence  hash  last, open, lapsed, floor
-- ARGV[1]  at_least      int           the next token will be above this
-- ARGV[2]  retention_ms  int           how long the fence record outlives its last use, milliseconds
--
-- Safe to re-send: yes, it never lowers
--
-- Returns  {last}  the highest token known afterwards
--
-- @include "fence"
local fence, at_least, retention_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])

local last, _, _, floor = read_fence(fence)
if not last then
  redis.call('HSET', fence, 'last', digits(at_least), 'open', '0', 'lapsed', '', 'floor', digits(at_least))
  last = at_least
elseif last < at_least then
  -- As long as no token is known at all, nothing is known up to the new last either.
  redis.call('HSET', fence, 'last', digits(at_least), 'floor', digits(floor >= last and at_least or floor))
  last = at_least
end
redis.call('PEXPIRE', fence, math.max(retention_ms, redis.call('PTTL', fence)))
return {digits(last)}
