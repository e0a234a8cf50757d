--- Look at one page of a node's keys.
--
-- KEYS[1]  route    {stem}  string  leads to the node; not touched
-- ARGV[1]  cursor   str     where the last page ended; 0 for the first
-- ARGV[2]  pattern  str     which keys
-- ARGV[3]  count    int     how many keys to look at
--
-- Safe to re-send: yes
-- Read only: yes
--
-- Returns  {cursor, {key, …}}  the cursor is 0 after the last page
local cursor, pattern, count = ARGV[1], ARGV[2], ARGV[3]

return redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count)
