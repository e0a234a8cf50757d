--- Remember that a message's result was published, so that the message once more does nothing.
--
-- KEYS[1]  idem     {name}:idem  hash  the idempotency record, see include/claim.lua of core
-- ARGV[1]  task_id  str          the message: its id has no space in it
-- ARGV[2]  most     int          how many bytes of ids are kept; the oldest go first
--
-- Safe to re-send: yes, an id that is on record is not added again
--
-- Returns  {1}  on record
--          {0}  the record is not done any more
local idem = KEYS[1]
local task_id, most = ARGV[1], tonumber(ARGV[2])

local r = redis.call('HMGET', idem, 'state', 'published')
if r[1] ~= 'done' then
  return {0}
end
local published = r[2] or ''
local added = ' ' .. task_id .. ' '
if not string.find(' ' .. published, added, 1, true) then
  redis.call('HSET', idem, 'published', string.sub(published .. task_id .. ' ', -most))
end
return {1}
