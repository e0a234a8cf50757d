--- Store what was loaded, if the ticket it was loaded with is still live.
--
-- KEYS[1]  entry    {entry}       string  header and JSON; expires with its ttl
-- KEYS[2]  ticket   {entry}:fill  string  attempt:time of the load that may store; deleted
-- ARGV[1]  held     bytes         the ticket that the load was begun with
-- ARGV[2]  head     bytes         the header's first bytes: kind and schema
-- ARGV[3]  rest     bytes         load cost, digest of tags, JSON
-- ARGV[4]  soft_ms  int           milliseconds until it should be refreshed, 0: never before it ends
-- ARGV[5]  px_ms    int           milliseconds until it expires
-- ARGV[6]  channel  str           where those who wait for a fill are woken
--
-- Safe to re-send: yes, a second copy finds no ticket and stores nothing
--
-- Returns  {1}  stored
--          {0}  refused: the ticket was removed by an invalidation or a write, or has expired
--
-- @include "entry"
local entry, ticket = KEYS[1], KEYS[2]
local held, head, rest, soft_ms, px_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local channel = ARGV[6]

if redis.call('GET', ticket) ~= held then
  return {0}
end
-- First of all writes, so that full memory refuses it.
write_entry(entry, head, rest, soft_ms, px_ms)
end_fill(ticket, channel)
return {1}
