--- Judge a token, and note it where asked.
--
-- KEYS[1]  record        {name}:fence  hash    the fence record, or an idempotency record
-- KEYS[2]  lock          {name}:lock   string  its token counts as well
-- ARGV[1]  token         int           the token shown
-- ARGV[2]  mode          str           lock, claim or remote: which record judges it
-- ARGV[3]  retention_ms  int           how long the fence record outlives its last use, milliseconds
-- ARGV[4]  advance       int           1: remember this token, so that older ones are refused
--
-- Safe to re-send: yes, the same token writes the same again
--
-- Returns  {1}        the token stands
--          {0, last}  a newer token is known, or (false) nothing is: nothing was written
--
-- @include "gate"
local record, lock = KEYS[1], KEYS[2]
local token, mode, retention_ms, advance = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

local refusal = refused(record, lock, mode, token)
if refusal then
  return refusal
end
if advance then
  note_token(record, lock, mode, token, retention_ms)
end
return {1}
