--- Set fields of a hash, unless a newer token is known.
--
-- KEYS[1]  record        {name}:fence  hash    the fence record, or an idempotency record
-- KEYS[2]  lock          {name}:lock   string  its token counts as well
-- KEYS[3]  target        target        hash    what is written
-- ARGV[1]  token         int           the token shown
-- ARGV[2]  mode          str           lock, claim or remote: which record judges it
-- ARGV[3]  retention_ms  int           how long the fence record outlives its last use, milliseconds
-- ARGV[4+] pairs         bytes         field, value, field, value, …
--
-- Safe to re-send: yes, the same token writes the same again
--
-- Returns  {1}        written
--          {0, last}  a newer token is known, or (false) nothing is: nothing was written
--
-- @include "gate"
local record, lock, target = KEYS[1], KEYS[2], KEYS[3]
local token, mode, retention_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local refusal = refused(record, lock, mode, token)
if refusal then
  return refusal
end
note_token(record, lock, mode, token, retention_ms)
-- In slices: unpack of a long list overflows Lua's stack.
for from = 4, #ARGV, 1000 do
  redis.call('HSET', target, unpack(ARGV, from, math.min(from + 999, #ARGV)))
end
return {1}
