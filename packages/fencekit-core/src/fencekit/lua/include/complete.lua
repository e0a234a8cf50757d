-- End a running attempt as done, and keep its memo. Needs include/claim.lua.
--
-- Returns the reply where there is nothing more to do: done before by this attempt, or not applied;
-- nil where it is done now.
local function complete(idem, owner, attempt, ttl_ms, encoding, result)
  local running, r = read_claim(idem, owner, attempt)
  if not running then
    return how_ended(r[6], attempt) == 'c' and {2} or not_running(r, attempt)
  end
  -- Where a begin was withdrawn, a copy of it may be under way: the record outlives it.
  if r[6] and string.find(r[6], ':w', 1, true) then
    ttl_ms = math.max(ttl_ms, LATE_MS)
  end
  -- The TTL first: it is allowed at maxmemory, and what follows it then is as well.
  redis.call('PEXPIRE', idem, ttl_ms)
  redis.call('HSET', idem, 'state', 'done', 'encoding', encoding, 'result', result, 'last', r[5] + 1, 'open', 0, 'ended', with_ended(r[6], attempt, 'c'))
  if r[4] ~= '1' then
    redis.call('HDEL', idem, 'error')
  end
  redis.pcall('PUBLISH', idem, 'done')
end
