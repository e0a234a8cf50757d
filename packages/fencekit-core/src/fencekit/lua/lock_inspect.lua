--- Read who holds the lock and what its fence record says.
--
-- KEYS[1]  lock   {name}:lock   string  owner:attempt:token
-- KEYS[2]  fence  {name}:fence  hash    last, open, lapsed, floor
--
-- Safe to re-send: yes, it only reads
-- Read only: yes
--
-- Returns  {value, pttl, last, open, lapsed, floor}  each nil or false where there is none
local lock, fence = KEYS[1], KEYS[2]
local record = redis.call('HMGET', fence, 'last', 'open', 'lapsed', 'floor')
return {redis.call('GET', lock), redis.call('PTTL', lock), record[1], record[2], record[3], record[4]}
