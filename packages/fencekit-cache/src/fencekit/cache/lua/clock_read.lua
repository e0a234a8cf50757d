--- Read the server's clock.
--
-- KEYS[1]  route  {stem}  string  leads to the node; not touched
--
-- Safe to re-send: yes
-- Read only: yes
--
-- Returns  milliseconds since 1970
local now = redis.call('TIME')
return now[1] * 1000 + math.floor(now[2] / 1000)
