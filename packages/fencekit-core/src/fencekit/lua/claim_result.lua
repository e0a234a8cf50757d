--- Read the memo of a done record.
--
-- KEYS[1]  idem  {name}:idem  hash  the idempotency record, see include/claim.lua
--
-- Safe to re-send: yes, it only reads
-- Read only: yes
--
-- Returns  {state, encoding, result}  each false where there is none
local idem = KEYS[1]
return redis.call('HMGET', idem, 'state', 'encoding', 'result')
