// What the page says, and how it writes numbers, times and errors.

const whole = new Intl.NumberFormat('en')

export const number = n => whole.format(n)

export const plural = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`

// clock writes a time of day in the reader's zone, to the millisecond.
export function clock(time) {
  const two = n => String(n).padStart(2, '0')
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, '0')}`
}

// duration writes seconds in the two largest units that say something.
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`
}

const resyncs = {
  cursor_expired: 'the log no longer holds the position of this page',
  cursor_ahead: 'this page was ahead of the log',
  epoch_missing: 'the position named no epoch',
  epoch_changed: 'the log began a new epoch, as after a restart in memory or a restore',
  history_changed: 'the log holds another event at the position of this page',
  cursor_invalid: 'the position could not be read',
  lagged: 'this page fell behind and the log no longer holds what it missed',
  encoding_failed: 'an event could not be encoded',
  log_reset: 'the log changed under the stream',
}

export const resyncReason = reason => resyncs[reason] ?? 'the server gave a reason that this page does not know'

const drains = {
  shutdown: 'The server is shutting down.',
  cut: 'The connection was cut on request.',
  token_expired: 'The access token has expired.',
  at_capacity: 'The server has no room for another stream.',
  not_ready: 'The server is not ready yet.',
  catching_up: 'The server is still catching up with the log.',
  upstream_unavailable: 'The proxy does not reach the server.',
}

export const drainReason = reason => drains[reason] ?? `The server closed the stream: ${reason}.`

const advice = {
  unauthorized: 'The server asks for a publish key: enter it under “Publish key”.',
  forbidden: 'The server does not allow this.',
  id_conflict: 'Another event already has this id.',
  too_large: 'The event is larger than the server accepts.',
  rate_limited: 'Too many requests.',
  not_ready: 'The server is not ready.',
  restore_not_finalized: 'The server waits for an operator.',
  sealed: 'The store takes no more events.',
}

// problem reads an error answer (RFC 9457) and says it in a sentence or two. It
// never fails: an answer that is no problem document is told by its status.
export async function problem(response) {
  let body = {}
  try {
    body = await response.json() ?? {}
  } catch {
    // A proxy's error page, or an answer cut short: the status has to do.
  }
  const code = body.code ?? (response.status === 401 ? 'unauthorized' : '')
  const detail = code === 'unauthorized' ? '' : body.detail // which says it in terms of headers
  const sentences = [advice[code], detail ?? (advice[code] ? '' : body.title)]
  const wait = response.headers.get('Retry-After')
  if (wait) sentences.push(`Try again in ${/^\d+$/.test(wait) ? duration(wait) : 'a while'}.`)
  const told = sentences.filter(Boolean).join(' ')
  return `${response.status}${code ? ' ' + code : ''}: ${told || response.statusText || 'no reason given'}`
}
