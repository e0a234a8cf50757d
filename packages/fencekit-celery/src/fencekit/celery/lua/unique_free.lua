--- Give a place in the queue back, if it is still this message's.
--
-- KEYS[1]  unique   {name}:unique  string  the id of the message that has it; expires
-- ARGV[1]  task_id  str            who gives it back
--
-- Safe to re-send: yes, a second copy finds it gone, or another's
--
-- Returns  {1}  given back
--          {0}  it was not this message's
local unique = KEYS[1]
local task_id = ARGV[1]

if redis.call('GET', unique) ~= task_id then
  return {0}
end
redis.call('DEL', unique)
return {1}
