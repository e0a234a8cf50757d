-- Granting a free lock. Needs fence.

-- Mint the next token, note it in the record and set the lock; returns the token as text.
local function grant_lock(lock, fence, owner, attempt, ttl_ms, retention_ms)
  local last, open, lapsed, floor = read_fence(fence)
  local token = next_token(last or 0)
  if not last or floor >= last then
    -- No record, or one that no grant has made: nothing is known of what was minted before.
    floor = token - 1
  elseif open ~= 0 then
    -- The grant before this one was never given back: remember that its lease ran out.
    lapsed = lapsed == '' and digits(open) or lapsed .. ',' .. digits(open)
    local kept, oldest = select(2, string.gsub(lapsed, '%d+', '')), nil
    while kept > LAPSED_KEPT do
      oldest, lapsed = string.match(lapsed, '^(%d+),(.*)$')
      floor = math.max(floor, tonumber(oldest))
      kept = kept - 1
    end
  end
  -- The record first: if a write below is refused, an open token without a lock is harmless, while a
  -- lock without its record would stand until its lease ends.
  local number = digits(token)
  redis.call('HSET', fence, 'last', number, 'open', number, 'lapsed', lapsed, 'floor', digits(floor))
  -- From the end of the lease, so that a release need not prolong it.
  redis.call('PEXPIRE', fence, retention_ms + ttl_ms)
  redis.call('SET', lock, owner .. ':' .. attempt .. ':' .. number, 'PX', ttl_ms)
  return number
end
