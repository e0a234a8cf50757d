--- Read the highest token known for a name.
--
-- KEYS[1]  record  {name}:fence  hash    the fence record, or an idempotency record
-- KEYS[2]  lock    {name}:lock   string  its token counts as well
-- ARGV[1]  mode    str           lock, claim or remote: which of the two keys are read
--
-- Safe to re-send: yes, it only reads
-- Read only: yes
--
-- Returns  {last}  or {false} where nothing is known
--
-- @include "gate"
local record, lock, mode = KEYS[1], KEYS[2], ARGV[1]
local last, held = known_tokens(record, lock, mode)
local highest = math.max(last or 0, held or 0)
return {highest > 0 and string.format('%.0f', highest)}
