--- Take the ticket to fill an entry in, unless somebody has it, or the entry has changed.
--
-- KEYS[1]  entry     {entry}       string  header and JSON; read
-- KEYS[2]  ticket    {entry}:fill  string  attempt:time of the load that may store, or hold; expires
-- ARGV[1]  attempt   str           128 random bits, made before the first send
-- ARGV[2]  seen      bytes         the entry's first bytes as the caller has seen them, or empty
-- ARGV[3]  lease_ms  int           milliseconds for which the load may take
--
-- Safe to re-send: yes, the attempt that has the ticket is confirmed
--
-- Returns  {1, ticket}  taken: only with this ticket, live, may be stored
--          {0, pttl}    another load is under way; milliseconds until its ticket expires
--          {2}          the entry is not what the caller has seen: read it again
--          {3}          on hold: load, but do not store
--
-- The time in the ticket is what keeps a late copy of this command from making a late copy of the
-- store valid again: it takes a ticket of another time.
local entry, ticket = KEYS[1], KEYS[2]
local attempt, seen, lease_ms = ARGV[1], ARGV[2], ARGV[3]

local held = redis.call('GET', ticket)
if held == 'hold' then
  return {3}
end
if held and string.sub(held, 1, #attempt) == attempt then
  return {1, held}
end
-- As many bytes as the caller compares with: enough for kind, schema, times and tags.
if redis.call('GETRANGE', entry, 0, 24) ~= seen then
  return {2}
end
if held then
  return {0, redis.call('PTTL', ticket)}
end
local now = redis.call('TIME')
held = attempt .. ':' .. now[1] .. '.' .. now[2]
redis.call('SET', ticket, held, 'PX', lease_ms)
return {1, held}
