--- Write a cache entry as the application says, and end a fill that is under way.
--
-- KEYS[1]  entry    {entry}       string  header and JSON; expires with its ttl
-- KEYS[2]  ticket   {entry}:fill  string  attempt:time of the load that may store, or hold
-- ARGV[1]  head     bytes         the header's first bytes: kind and schema
-- ARGV[2]  rest     bytes         load cost, digest of tags, JSON
-- ARGV[3]  soft_ms  int           milliseconds until it should be refreshed, 0: never before it ends
-- ARGV[4]  px_ms    int           milliseconds until it expires
-- ARGV[5]  channel  str           where those who wait for a fill are woken
--
-- Safe to re-send: no, a late copy would bring back what was invalidated meanwhile
--
-- Returns  {1}  written
--
-- @include "entry"
local entry, ticket = KEYS[1], KEYS[2]
local head, rest, soft_ms, px_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local channel = ARGV[5]

end_fill(ticket, channel)
write_entry(entry, head, rest, soft_ms, px_ms)
return {1}
