--- Take a place in the queue for a message, unless another message has it.
--
-- KEYS[1]  unique   {name}:unique  string  the id of the message that has it; expires
-- ARGV[1]  task_id  str            who asks
-- ARGV[2]  ttl_ms   int            how long it is kept at most, milliseconds
--
-- Safe to re-send: yes, who has it gets it again
--
-- Returns  {1, task_id}  it is the asker's
--          {0, task_id}  it is another message's
local unique = KEYS[1]
local task_id, ttl_ms = ARGV[1], tonumber(ARGV[2])

local holder = redis.call('GET', unique)
if holder and holder ~= task_id then
  return {0, holder}
end
redis.call('SET', unique, task_id, 'PX', ttl_ms)
return {1, task_id}
