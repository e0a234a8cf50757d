-- The queue, shared by everything that enters, leaves or advances it. Needs fence, restore and grant.
--
-- queue    stream  one entry per waiter: w (owner:attempt), c (wake channel of its process)
-- tickets  hash    attempt -> entry id, ' ', how many were queued before it
-- members  zset    wake channel -> server milliseconds until which its process counts as alive. A
--                  process that lost a place because it was dead is no member any more, and so
--                  learns of it with its next word; one that was only late has lost nothing
--
-- turn     what every command that may advance the queue says of its process, one text with spaces:
--          channel offer_ms lease_ms alive_ms solo wake name
--            channel   where the process is woken
--            offer_ms  how long an offer stands, milliseconds
--            lease_ms  the lease of its waiters, milliseconds
--            alive_ms  how long a process counts as alive after its last word, milliseconds
--            solo      1: one server, so that PUBLISH counts every listener
--            wake      where waiters of a plain lock are woken
--            name      the lock's name
--
-- A ticket counts only if its entry exists, an entry only if its ticket names it: whatever is lost
-- of either, a waiter has one place at most.

-- How long the three outlive the last word of any process, in units of a process's own window.
local LIVE_WINDOWS = 4

local function read_turn(turn)
  local channel, offer_ms, lease_ms, alive_ms, solo, wake, name =
    string.match(turn, '^(%S+) (%d+) (%d+) (%d+) ([01]) (%S+) (%S+)$')
  return {channel = channel, offer_ms = tonumber(offer_ms), lease_ms = tonumber(lease_ms),
    alive_ms = tonumber(alive_ms), solo = solo == '1', wake = wake, name = name}
end

local function server_now()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

-- Note that a process is alive; returns whether it was no member, so that places may be gone.
local function greet(queue, tickets, members, channel, alive_ms, now_us)
  local now_ms = math.floor(now_us / 1000)
  local left, whole = redis.call('PTTL', members), alive_ms * LIVE_WINDOWS
  -- Before anything that maxmemory may forbid: a process must not die of a full server.
  redis.call('PEXPIRE', members, math.max(left, whole))
  local added = redis.call('ZADD', members, digits(now_ms + alive_ms), channel)
  -- The queue's own time: every beat makes that of the members whole again, so theirs tells nothing.
  if math.min(left, redis.call('PTTL', queue)) < whole - alive_ms then
    for _, key in ipairs({queue, tickets, members}) do
      redis.call('PEXPIRE', key, math.max(whole, redis.call('PTTL', key)))
    end
  end
  return added == 1
end

-- Returns the entry's id and how many were before it, or nil where the attempt is not queued.
local function place_of(queue, tickets, waiter, attempt)
  local ticket = redis.call('HGET', tickets, attempt)
  if ticket then
    local id, before = string.match(ticket, '^(%S+) (%d+)$')
    local entry = redis.call('XRANGE', queue, id, id)[1]
    if entry and entry[2][2] == waiter then
      return id, tonumber(before)
    end
  end
  return nil
end

-- Take a place, or keep the one that is there; returns how many were before it.
local function enqueue(queue, tickets, waiter, attempt, channel, alive_ms)
  local id, before = place_of(queue, tickets, waiter, attempt)
  if id then
    return before
  end
  before = redis.call('XLEN', queue)
  id = redis.call('XADD', queue, '*', 'w', waiter, 'c', channel)
  redis.call('HSET', tickets, attempt, id .. ' ' .. before)
  if before == 0 then
    -- From then on it is the beats that keep them.
    redis.call('PEXPIRE', queue, alive_ms * LIVE_WINDOWS)
    redis.call('PEXPIRE', tickets, alive_ms * LIVE_WINDOWS)
  end
  return before
end

-- Give up a place. A queue that nobody is in costs no memory.
local function leave(queue, tickets, members, attempt)
  local ticket = redis.call('HGET', tickets, attempt)
  if ticket then
    redis.call('HDEL', tickets, attempt)
    redis.call('XDEL', queue, string.match(ticket, '^%S+'))
    if redis.call('XLEN', queue) == 0 then
      redis.call('DEL', queue, tickets, members)
    end
  end
end

-- Grant a free lock, as `grant_lock` does. Where it was given back in this very script, `given_back` is
-- the token that the record does not know that of yet: its end and the next one's beginning are one write.
local function pass_on(lock, fence, owner, attempt, ttl_ms, retention_ms, now_us, given_back)
  if given_back then
    local last, _, _, floor = read_fence(fence)
    if last == given_back and floor < last then
      -- As it nearly always is: the record's newest token, and everything else in it stands.
      local number = digits(math.max(last + 1, now_us))
      redis.call('HSET', fence, 'last', number, 'open', number)
      redis.call('PEXPIRE', fence, retention_ms + ttl_ms)
      redis.call('SET', lock, owner .. ':' .. attempt .. ':' .. number, 'PX', ttl_ms)
      return number
    end
    restore_fence(fence, given_back, '0', retention_ms)
  end
  return grant_lock(lock, fence, owner, attempt, ttl_ms, retention_ms)
end

-- If the lock is free, grant it to the first waiter whose process is alive and listens. One of the
-- caller's own process has the whole lease at once, and is not sent a message: the reply says so.
-- Another process is offered the lock, for as long as it may take to hear of it, and the place stays.
-- Returns what every reply ends with: milliseconds left, the lock's value or '', the server's time, and
-- 1 if it was granted to the caller's own process. `held` is the lock's value as it is now, or false;
-- `given_back` as for `pass_on`, noted in the record where nobody is granted the lock.
local function advance(lock, fence, queue, tickets, members, turn, retention_ms, now_us, held, given_back)
  local now = digits(now_us)
  if held then
    return redis.call('PTTL', lock), held, now, 0
  end
  local now_ms = math.floor(now_us / 1000)
  local from, deaf, deadlines = '-', {}, {}
  while true do
    local entries = redis.call('XRANGE', queue, from, '+', 'COUNT', from == '-' and 1 or 64)
    if #entries == 0 then
      break
    end
    for _, entry in ipairs(entries) do
      local id, waiter, channel = entry[1], entry[2][2], entry[2][4]
      local owner, attempt = string.match(waiter, '^([^:]*):(.*)$')
      local ticket = redis.call('HGET', tickets, attempt)
      local mine = not ticket or string.match(ticket, '^%S+') == id
      if not deadlines[channel] then
        -- Whoever asks is alive.
        deadlines[channel] = channel == turn.channel and math.huge
          or tonumber(redis.call('ZSCORE', members, channel) or 0)
      end
      if deadlines[channel] < now_ms or not mine then
        redis.call('XDEL', queue, id)
        if mine then
          redis.call('HDEL', tickets, attempt)
          redis.call('ZREM', members, channel)
        end
      elseif channel == turn.channel then
        local number = pass_on(
          lock, fence, owner, attempt, turn.lease_ms, retention_ms, now_us, given_back)
        redis.call('XDEL', queue, id)
        redis.call('HDEL', tickets, attempt)
        if redis.call('XLEN', queue) == 0 then
          redis.call('DEL', queue, tickets, members)
        end
        return turn.lease_ms, waiter .. ':' .. number, now, 1
      elseif not deaf[channel] then
        if not ticket then
          redis.call('HSET', tickets, attempt, id .. ' 0')
        end
        local number = pass_on(
          lock, fence, owner, attempt, turn.offer_ms, retention_ms, now_us, given_back)
        local heard = redis.pcall('PUBLISH', channel, string.format('%s %s %s %s %.0f %s',
          owner, attempt, number, now, turn.offer_ms, turn.name))
        -- A cluster counts the listeners of this node only; an error is the ACL's, and nobody heard.
        if type(heard) == 'number' and (heard > 0 or not turn.solo) then
          return turn.offer_ms, waiter .. ':' .. number, now, 0
        end
        -- Nobody listens there: take the offer back, keep the entry, go on.
        redis.call('DEL', lock)
        redis.call('HSET', fence, 'open', '0')
        deaf[channel] = true
      end
      from = '(' .. id
    end
  end
  if given_back then
    restore_fence(fence, given_back, '0', retention_ms)
  end
  if redis.call('XLEN', queue) == 0 then
    redis.call('DEL', queue, tickets, members)
  end
  return 0, '', now, 0
end

-- Free the lock if this attempt holds it, with whichever token; returns whether it did.
local function free_from(lock, fence, waiter, retention_ms)
  local held, stem = redis.call('GET', lock), waiter .. ':'
  if not held or string.sub(held, 1, #stem) ~= stem then
    return false
  end
  redis.call('DEL', lock)
  restore_fence(fence, tonumber(string.sub(held, #stem + 1)), '0', retention_ms)
  return true
end
