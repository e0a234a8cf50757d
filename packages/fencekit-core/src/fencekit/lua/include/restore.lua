-- Keeping the fence record alive while its lock is: release and renew restore one that was lost.

-- Note what a lock in our hands proves: its token was minted, nothing was granted since, and it is
-- open (renew) or was just given back (release). So the floor may come down to just below it; and
-- it rises to there when the record has not heard of the token, because then it was lost and made
-- anew since, by something that knew less.
local function restore_fence(key, token, open, retention_ms)
  local last, _, lapsed, floor = read_fence(key)
  if last == token and floor < token then
    -- As it nearly always is: the record's newest token, and everything else in it stands.
    redis.call('HSET', key, 'open', open)
    if open == '0' then
      -- Within the lease, from whose end its life is counted already.
      return
    end
  else
    redis.call('HSET', key,
      'last', digits(math.max(last or 0, token)), 'open', open, 'lapsed', lapsed,
      'floor', digits(last and last >= token and math.min(floor, token - 1) or token - 1))
  end
  redis.call('PEXPIRE', key, math.max(retention_ms, redis.call('PTTL', key)))
end
