-- Granting a free lock. Needs fence.

-- The record's other fields where the grant before this one was never given back, or no grant has
-- made the record. Returns lapsed, floor.
local function what_lapsed(fence, last, open, floor, token)
  local lapsed = redis.call('HGET', fence, 'lapsed') or ''
  if not last or floor >= last then
    -- Nothing is known of what was minted before.
    return lapsed, token - 1
  end
  -- Remember that the lease of the open one ran out.
  lapsed = lapsed == '' and digits(open) or lapsed .. ',' .. digits(open)
  local kept, oldest = select(2, string.gsub(lapsed, '%d+', '')), nil
  while kept > LAPSED_KEPT do
    oldest, lapsed = string.match(lapsed, '^(%d+),(.*)$')
    floor = math.max(floor, tonumber(oldest))
    kept = kept - 1
  end
  return lapsed, floor
end

-- Mint the next token, note it in the record and set the lock; returns the token as text.
local function grant_lock(lock, fence, owner, attempt, ttl_ms, retention_ms)
  local known = redis.call('HMGET', fence, 'last', 'open', 'floor')
  local last, open, floor = tonumber(known[1]), tonumber(known[2] or 0), tonumber(known[3] or 0)
  local token = next_token(last or 0)
  local number = digits(token)
  -- The record first: if a write below is refused, an open token without a lock is harmless, while a
  -- lock without its record would stand until its lease ends.
  if last and floor < last and open == 0 then
    -- As it nearly always is: the last grant was given back, and everything else in the record stands.
    redis.call('HSET', fence, 'last', number, 'open', number)
  else
    local lapsed, raised = what_lapsed(fence, last, open, floor, token)
    redis.call('HSET', fence, 'last', number, 'open', number, 'lapsed', lapsed, 'floor', digits(raised))
  end
  -- From the end of the lease, so that a release need not prolong it.
  local life_ms = retention_ms + ttl_ms
  if token == (last or 0) + 1 then
    -- Ahead of the clock, which nothing but the record knows: who keeps records for less does not
    -- shorten its life.
    life_ms = math.max(life_ms, redis.call('PTTL', fence))
  end
  redis.call('PEXPIRE', fence, life_ms)
  redis.call('SET', lock, owner .. ':' .. attempt .. ':' .. number, 'PX', ttl_ms)
  return number
end
