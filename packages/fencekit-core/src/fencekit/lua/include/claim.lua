-- The idempotency record, shared by everything that begins, ends or reads a claim.
--
-- One hash, which is itself the lock of its key:
--   state        running, retryable, done, failed or exhausted; none in the two minutes after a
--                clear or a withdrawn first attempt, when only the fence and `ended` are kept
--   owner        who began the attempt
--   attempt      the attempt that runs, or ran last: 32 hexadecimal digits
--   attempts     how many were begun and not given back
--   began        'reclaimed' where the attempt that runs took over from another, so that a begin
--                that is repeated answers as the first did
--   lease_until  server time in milliseconds
--   fingerprint  digest of the payload, empty if none was shown
--   last, open, floor   the fence, as in include/fence.lua. Only a begin mints a token; every end
--                advances `last` beyond it, so that what has ended is shut out
--   result, encoding    the memo of a done record; published and task_id belong to Celery
--   error        what the last failed attempt left
--   ended        the last 16 attempts that ended, oldest first: attempt, ':', a letter, ' '
--                c completed, f failed, r released, w withdrawn, x reclaimed, e exhausted, k cleared

--
-- Numbers are handed to redis.call as they are: it writes 17 digits, and all of ours are below 2^53.

-- As long as a copy of a command may be under way, milliseconds: what is known of ended attempts
-- lives at least that long.
local LATE_MS = 120000
-- 16 entries of 35 characters.
local ENDED_BYTES = 16 * 35

-- How an attempt ended, as a letter; nil if it did not, or so long ago that it is forgotten.
local function how_ended(ended, attempt)
  return ended and string.match(ended, attempt .. ':(%a)')
end

local function with_ended(ended, attempt, how)
  return string.sub((ended or '') .. attempt .. ':' .. how .. ' ', -ENDED_BYTES)
end

-- What every operation on a running attempt asks first. Returns whether the attempt is running
-- here, then the fields: state, owner, attempt, attempts, last, ended.
local function read_claim(idem, owner, attempt)
  local r = redis.call('HMGET', idem, 'state', 'owner', 'attempt', 'attempts', 'last', 'ended')
  return r[1] == 'running' and r[2] == owner and r[3] == attempt, r
end

-- The reply to an attempt that does not run here: how it ended, or '' where that is not known, and
-- the state of the record, '' where there is none.
local function not_running(r, attempt)
  return {0, how_ended(r[6], attempt) or '', r[1] or ''}
end

-- Extend a TTL, never shorten it. Allowed at maxmemory, and so is every write after it.
local function live_at_least(idem, ms)
  redis.call('PEXPIRE', idem, math.max(ms, redis.call('PTTL', idem)))
end
