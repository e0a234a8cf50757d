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
local idem = KEYS[1]
local owner, attempt, lease_ms, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local fingerprint, max_attempts, reclaim, task_id = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]

-- Server time in microseconds, and in milliseconds.
local function clock()
  local now = redis.call('TIME')
  local us = now[1] * 1000000 + now[2]
  return us, math.floor(us / 1000)
end

-- Not by EXISTS, which nothing else needs and the smallest ACL does not have.
if redis.call('PTTL', idem) == -2 then
  -- As it nearly always is: nothing is known of the key.
  local now_us, now = clock()
  redis.call('HSET', idem, 'state', 'running', 'owner', owner, 'attempt', attempt, 'attempts', 1,
    'lease_until', now + lease_ms, 'last', now_us, 'open', now_us, 'task_id', task_id,
    'fingerprint', fingerprint, 'floor', now_us - 1)
  -- Without a TTL it would stand for ever: it goes again if none can be set.
  local set = redis.pcall('PEXPIRE', idem, math.max(ttl_ms, lease_ms))
  if type(set) == 'table' and set.err then
    redis.call('DEL', idem)
    return set
  end
  return {'begun', now_us, 1}
end

local r = redis.call('HMGET', idem, 'state', 'last', 'ended', 'fingerprint', 'encoding', 'result', 'published', 'task_id')
local state, last, ended, known = r[1], r[2] and tonumber(r[2]), r[3], r[4] or ''
if fingerprint ~= '' and known ~= '' and fingerprint ~= known then
  return {'mismatch'}
elseif state == 'done' then
  return {'done', r[5] or '', r[6] or '', r[7] or '', r[8] or ''}
end

-- What is rare stands behind its include: every call makes its functions anew.
-- @include "claim"
local held = {}
if state then
  held = redis.call('HMGET', idem, 'owner', 'attempt', 'attempts', 'lease_until', 'open', 'began', 'error', 'floor')
  if state == 'failed' or state == 'exhausted' then
    return {state, held[7] or '', tonumber(held[3])}
  end
end
local how = how_ended(ended, attempt)
if how then
  return {'ended', how}
end

local now_us, now = clock()
local attempts, began = tonumber(held[3] or 0), 'begun'
if state == 'running' then
  local lease_until = tonumber(held[4])
  if held[2] == attempt and held[1] == owner then
    -- A late copy must not shorten what the holder has renewed since.
    live_at_least(idem, math.max(ttl_ms, lease_ms))
    redis.call('HSET', idem, 'lease_until', math.max(lease_until, now + lease_ms))
    return {held[6] or 'begun', tonumber(held[5]), attempts}
  end
  if now < lease_until then
    return {'running', lease_until - now, held[1], held[2], r[8] or ''}
  elseif reclaim ~= 'any' and reclaim ~= held[2] then
    return {'running', 0, held[1], held[2], r[8] or ''}
  end
  began = 'reclaimed'
end

local exhausted = max_attempts > 0 and attempts >= max_attempts
if began == 'reclaimed' then
  ended = with_ended(ended, held[2], exhausted and 'e' or 'x')
end
-- The TTL first: if the write after it is refused, nothing has begun.
live_at_least(idem, math.max(ttl_ms, lease_ms))
local token = math.max((last or 0) + 1, now_us)
if exhausted then
  -- The fence rises, so that an attempt which still runs is shut out.
  redis.call('HSET', idem, 'state', 'exhausted', 'last', token, 'open', 0, 'ended', ended or '')
  return {'exhausted', held[7] or '', attempts}
end

attempts = attempts + 1
redis.call('HSET', idem, 'state', 'running', 'owner', owner, 'attempt', attempt, 'attempts', attempts,
  'lease_until', now + lease_ms, 'last', token, 'open', token, 'task_id', task_id,
  'fingerprint', known ~= '' and known or fingerprint, 'floor', last and held[8] or token - 1,
  'began', began, 'ended', ended or '')
return {began, token, attempts}
