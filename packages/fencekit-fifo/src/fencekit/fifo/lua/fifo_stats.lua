--- Read who holds the lock and who waits for it.
--
-- KEYS[1]  lock   {name}:lock   string  owner:attempt:token
-- KEYS[2]  fence  {name}:fence  hash    last, open, lapsed, floor
-- KEYS[3]  queue  {name}:queue  stream  one entry per waiter: w, c
--
-- Safe to re-send: yes, it only reads
-- Read only: yes
--
-- Returns  {holder, pttl, last, waiting, oldest, now}  holder: the lock's value; oldest: id of the
--          first entry that waits; both empty where there is none; now: server time, microseconds
local lock, fence, queue = KEYS[1], KEYS[2], KEYS[3]
local holder = redis.call('GET', lock) or ''
local waiting, oldest = redis.call('XLEN', queue), ''
for _, entry in ipairs(redis.call('XRANGE', queue, '-', '+', 'COUNT', 2)) do
  -- An entry whose offer was not taken up yet waits no more.
  local waiter = entry[2][2]
  if string.sub(holder, 1, #waiter + 1) == waiter .. ':' then
    waiting = waiting - 1
  elseif oldest == '' then
    oldest = entry[1]
  end
end
local now = redis.call('TIME')
return {holder, redis.call('PTTL', lock), redis.call('HGET', fence, 'last') or '0', waiting, oldest,
  string.format('%.0f', tonumber(now[1]) * 1000000 + tonumber(now[2]))}
