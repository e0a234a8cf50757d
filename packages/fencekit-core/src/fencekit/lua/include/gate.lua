-- Judging a token shown at the gate.

-- Returns the highest token on record and the token in the lock key; each nil where there is none.
local function known_tokens(record, lock, mode)
  local last = tonumber(redis.call('HGET', record, 'last'))
  local held
  if mode == 'lock' then
    local value = redis.call('GET', lock)
    held = value and tonumber(string.match(value, ':(%d+)$'))
  end
  return last, held
end

-- Returns nil for a token that may write, else the reply that refuses it. With no record only the
-- token in the lock key is accepted: it fails closed. A remote gate has no lock beside it and
-- takes the first token it is shown.
local function refused(record, lock, mode, token)
  local last, held = known_tokens(record, lock, mode)
  local highest = math.max(last or 0, held or 0)
  if token < highest or (not last and token ~= held and mode ~= 'remote') then
    return {0, highest > 0 and string.format('%.0f', highest)}
  end
  return nil
end

-- Note a token that was accepted, so that no older one is from now on. A record that was lost, or
-- lost and made anew by something that knew of no grant, comes back: knowing nothing below this
-- token, or nothing up to it where no lock proves it. The usual token is its record's last already,
-- and costs nothing.
local function note_token(record, lock, mode, token, retention_ms)
  local last, held = known_tokens(record, lock, mode)
  if last and last >= token then
    return
  end
  local number, proven = string.format('%.0f', token), held == token
  local floor = tonumber(redis.call('HGET', record, 'floor') or 0)
  if last and floor < last and not proven then
    redis.call('HSET', record, 'last', number)
  else
    redis.call('HSET', record, 'last', number, 'open', proven and number or '0', 'lapsed', '',
      'floor', string.format('%.0f', proven and token - 1 or token))
  end
  redis.call('PEXPIRE', record, math.max(retention_ms, redis.call('PTTL', record)))
end
