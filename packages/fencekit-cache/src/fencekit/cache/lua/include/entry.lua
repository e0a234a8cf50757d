-- Writing a cache entry, and ending the fill that is under way.

-- Header: kind and schema, as given; when to refresh, by this server's clock; then the rest.
local function write_entry(entry, head, rest, soft_ms, px_ms)
  local soft = 0
  if soft_ms > 0 then
    local now = redis.call('TIME')
    soft = now[1] * 1000 + math.floor(now[2] / 1000) + soft_ms
  end
  local soft_bytes = struct.pack('>I2I4', math.floor(soft / 4294967296), soft % 4294967296)
  redis.call('SET', entry, head .. soft_bytes .. rest, 'PX', px_ms)
end

-- A hold outlives it: it is there to keep every fill out for its time.
local function end_fill(ticket, channel)
  local held = redis.call('GET', ticket)
  if held and held ~= 'hold' then
    redis.call('DEL', ticket)
    redis.pcall('PUBLISH', channel, 'changed')
  end
end
