// The server's own numbers, from the status request.

import { duration, number, plural } from './words.js'

const EVERY_MS = 2000
const AT_MOST_EVERY_MS = 500
const SLOWEST_MS = 30_000

const put = (id, text) => { document.getElementById(id).textContent = text }

// Status polls while the page can be seen, never two requests at once, and less
// and less often while the server does not answer.
export class Status {
  latest = null // the last answer, or null
  #changed
  #timer = 0
  #asked = -Infinity
  #busy = false
  #news = false // something happened after the request under way was sent
  #failures = 0

  constructor(changed) {
    this.#changed = changed
    document.addEventListener('visibilitychange', () => this.soon())
    this.soon()
  }

  // soon asks at the next good moment, as when the stream has told of news.
  soon() {
    this.#news = true
    if (!this.#busy) this.#schedule(AT_MOST_EVERY_MS)
  }

  #schedule(wait) {
    clearTimeout(this.#timer)
    if (document.hidden) return
    this.#timer = setTimeout(() => this.#ask(), Math.max(0, this.#asked + wait - performance.now()))
  }

  async #ask() {
    this.#busy = true
    this.#news = false
    this.#asked = performance.now()
    try {
      const response = await fetch('api/v1/status', { signal: AbortSignal.timeout(5000) })
      if (!response.ok) throw new Error(`status ${response.status}`)
      this.latest = await response.json()
      this.#failures = 0
      this.#show()
    } catch {
      // Shown as old numbers; the connection's own state says what is wrong.
      this.#failures++
      document.querySelector('.figures').classList.add('stale')
    }
    this.#busy = false
    this.#changed()
    if (this.#failures > 0) this.#schedule(Math.min(EVERY_MS * 2 ** this.#failures, SLOWEST_MS))
    else this.#schedule(this.#news ? AT_MOST_EVERY_MS : EVERY_MS)
  }

  #show() {
    const s = this.latest
    document.querySelector('.figures').classList.remove('stale')
    put('epoch', s.epoch)
    put('oldest', String(s.oldest_seq))
    put('connections', number(s.connections.total))
    const { replaying, lagging } = s.connections
    put('connections-by-state', [replaying && `${number(replaying)} replaying`, lagging && `${number(lagging)} lagging`].filter(Boolean).join(', '))
    const trouble = s.status === 'ready' ? '' : `${s.status.replace('_', ' ')}${s.reason ? `: ${s.reason}` : ''}`
    put('server', [trouble, s.node, s.version, `${s.store} store`, `${plural(s.retained_events, 'event')} kept`, `up ${duration(s.uptime_seconds)}`].filter(Boolean).join(' · '))
  }
}
