--- Begin an attempt unless the work is done, failed for good, being done, or out of attempts.
--
-- KEYS[1]  idem          {name}:idem  hash  the idempotency record, see include/claim.lua
-- ARGV[1]  owner         str          who begins
-- ARGV[2]  attempt       str          32 hexadecimal digits, random, made before the first send
-- ARGV[3]  lease_ms      int          how long the attempt is protected, milliseconds
-- ARGV[4]  ttl_ms        int          how long the record lives at least, milliseconds
-- ARGV[5]  fingerprint   str          digest of the payload; empty: not compared
-- ARGV[6]  max_attempts  int          attempts allowed in all; 0: no limit
-- ARGV[7]  reclaim       str          any, none, or the one attempt that may be taken over
-- ARGV[8]  task_id       str          the message that carries the work; may be empty
--
-- Safe to re-send: yes, the attempt begins once and is confirmed after that
--
-- Returns  {'begun', token, n}              the n-th attempt begins, or this attempt runs already
--          {'reclaimed', token, n}          the same, taken over from an attempt whose lease is over
--          {'running', left, owner, attempt, task_id}  milliseconds left of the lease, at least 1;
--                                           0: over, but not to be reclaimed by this call
--          {'done', encoding, result, published, task_id}
--          {'failed', error, n}             for good, at the n-th attempt
--          {'exhausted', error, n}          n attempts were begun; the last error, empty if none
--          {'mismatch'}                     another fingerprint is on record
--          {'ended', how}                   this attempt is over: a late copy starts nothing
--
-- @include "fence"
-- @include "claim"
local idem = KEYS[1]
local owner, attempt, lease_ms, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local fingerprint, max_attempts, reclaim, task_id = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]

local r = redis.call('HMGET', idem, 'state', 'owner', 'attempt', 'attempts', 'lease_until', 'last', 'ended',
  'fingerprint', 'floor', 'open', 'began', 'error', 'encoding', 'result', 'published', 'task_id')
local state, attempts, lease_until, last, ended = r[1], tonumber(r[4] or 0), tonumber(r[5] or 0), tonumber(r[6]), r[7]
local known = r[8] or ''

local how = how_ended(ended, attempt)
if how then
  return {'ended', how}
end
if fingerprint ~= '' and known ~= '' and fingerprint ~= known then
  return {'mismatch'}
end
if state == 'done' then
  return {'done', r[13] or '', r[14] or '', r[15] or '', r[16] or ''}
elseif state == 'failed' then
  return {'failed', r[12] or '', attempts}
elseif state == 'exhausted' then
  return {'exhausted', r[12] or '', attempts}
end

local now = server_ms()
local began = 'begun'
if state == 'running' then
  if r[3] == attempt and r[2] == owner then
    -- A late copy must not shorten what the holder has renewed since.
    live_at_least(idem, math.max(ttl_ms, lease_ms))
    redis.call('HSET', idem, 'lease_until', digits(math.max(lease_until, now + lease_ms)))
    return {r[11], r[10], attempts}
  end
  if now < lease_until then
    return {'running', lease_until - now, r[2], r[3], r[16] or ''}
  elseif reclaim ~= 'any' and reclaim ~= r[3] then
    return {'running', 0, r[2], r[3], r[16] or ''}
  end
  began = 'reclaimed'
end

local token = next_token(last or 0)
local number = digits(token)
if max_attempts > 0 and attempts >= max_attempts then
  if began == 'reclaimed' then
    ended = with_ended(ended, r[3], 'e')
  end
  live_at_least(idem, ttl_ms)
  -- The fence rises, so that an attempt which still runs is shut out.
  redis.call('HSET', idem, 'state', 'exhausted', 'last', number, 'open', '0', 'ended', ended or '')
  return {'exhausted', r[12] or '', attempts}
end

if began == 'reclaimed' then
  ended = with_ended(ended, r[3], 'x')
end
-- A record that exists gets its TTL first: if the write after it is refused, nothing has begun.
local exists = last or ended
if exists then
  live_at_least(idem, math.max(ttl_ms, lease_ms))
end
attempts = attempts + 1
redis.call('HSET', idem, 'state', 'running', 'owner', owner, 'attempt', attempt, 'attempts', attempts, 'began', began,
  'lease_until', digits(now + lease_ms), 'fingerprint', known ~= '' and known or fingerprint,
  'last', number, 'open', number, 'floor', r[9] or digits(token - 1), 'task_id', task_id, 'ended', ended or '')
if not exists then
  -- Without a TTL it would stand for ever: it goes again if none can be set.
  local set = redis.pcall('PEXPIRE', idem, math.max(ttl_ms, lease_ms))
  if type(set) == 'table' and set.err then
    redis.call('DEL', idem)
    return set
  end
end
return {began, number, attempts}
