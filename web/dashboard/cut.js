// Cut my connection: the server ends this page's stream, the browser returns
// with its cursor, and the page says what it missed.

import { answer, authorization } from './publish.js'
import { plural, problem } from './words.js'

// Cut runs one cut at a time. live() must be called whenever the stream has
// caught up: it completes the cut that is under way.
export class Cut {
  #stream
  #ledger
  #before = null

  constructor(stream, ledger) {
    this.#stream = stream
    this.#ledger = ledger
  }

  async run() {
    const { connectionId } = this.#stream
    // The button is never disabled, only marked so: it would lose the focus.
    if (!connectionId) return
    const { last, seen, missed, repeated } = this.#ledger
    // Noted first: the stream may end before the answer is here.
    const before = { connectionId, at: last, seen, missed, repeated, time: performance.now() }
    this.#before = before
    answer('cut-answer', 'wait', `Cutting at seq ${last}…`)
    let trouble = ''
    try {
      const response = await fetch(`api/v1/connections/${encodeURIComponent(connectionId)}`, {
        method: 'DELETE',
        headers: authorization(),
        signal: AbortSignal.timeout(10_000),
      })
      if (response.status === 404) trouble = 'The server no longer knows this connection: it has ended already.'
      else if (!response.ok) trouble = await problem(response)
    } catch {
      trouble = 'The server did not answer.'
    }
    if (this.#before !== before) return
    if (trouble) {
      this.#before = null
      answer('cut-answer', 'bad', trouble)
    } else answer('cut-answer', 'wait', `Cut at seq ${last}. The browser returns by itself…`)
  }

  live() {
    const before = this.#before
    const { connectionId, start } = this.#stream
    if (!before || connectionId === before.connectionId) return
    this.#before = null
    const away = ((performance.now() - before.time) / 1000).toFixed(1)
    if (start.kind !== 'resume') {
      answer('cut-answer', 'bad', `Back after ${away} s, but not where it was: the stream began with a ${start.kind}.`)
      return
    }
    const missed = this.#ledger.missed + this.#ledger.checking - before.missed
    const repeated = this.#ledger.repeated - before.repeated
    const whole = missed === 0 && repeated === 0
    answer('cut-answer', whole ? 'good' : 'bad',
      `Back after ${away} s. Resumed from seq ${start.seq}, caught up with ${plural(this.#ledger.seen - before.seen, 'event')}: ` +
      (whole ? 'nothing missed, nothing repeated.' : `${missed} missed, ${repeated} repeated.`))
  }
}
