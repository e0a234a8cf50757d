-- Undoing whatever an attempt was granted, and refusing its late copies. Needs fence, restore, bury.

-- Returns whether the attempt held the lock, with whichever token.
local function withdraw_attempt(lock, fence, gone, owner, attempt, retention_ms, channel)
  local held = redis.call('GET', lock)
  local stem = owner .. ':' .. attempt .. ':'
  local holds = held and string.sub(held, 1, #stem) == stem
  if holds then
    redis.call('DEL', lock)
    redis.pcall('PUBLISH', channel, 'free')
    -- What is buried matters more than a record that may not be written.
    pcall(restore_fence, fence, tonumber(string.sub(held, #stem + 1)), '0', retention_ms)
  end
  bury_attempt(gone, attempt)
  return holds
end
