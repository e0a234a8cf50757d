-- The fence record, shared by everything that grants, releases or judges a lock's token.
--
-- One hash: last (highest token minted or shown), open (token of the grant outstanding, 0 after a
-- clean release), lapsed (up to 32 tokens whose lease ran out unreleased, comma separated), floor
-- (nothing is known of tokens up to here).

local LAPSED_KEPT = 32

-- A token as text: tostring would write 1.7e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- The next token: above the last, and above every token of a record that was lost, as long as the
-- clock has not stepped back past it.
local function next_token(last)
  local now = redis.call('TIME')
  return math.max(last + 1, now[1] * 1000000 + now[2])
end

-- Returns last, open, lapsed (text), floor; last is nil when there is no record.
local function read_fence(key)
  local raw = redis.call('HMGET', key, 'last', 'open', 'lapsed', 'floor')
  return tonumber(raw[1]), tonumber(raw[2] or 0), raw[3] or '', tonumber(raw[4] or 0)
end

local function has_lapsed(lapsed, token)
  return string.find(',' .. lapsed .. ',', ',' .. digits(token) .. ',', 1, true) ~= nil
end

-- Whether a token that no longer holds its lock was given back, as far as the record knows.
local function was_released(last, open, lapsed, floor, token)
  return last ~= nil and floor < token and token <= last and open ~= token
    and not has_lapsed(lapsed, token)
end
