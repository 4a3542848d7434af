// The ledger is the page's own proof that nothing is missing. The stream asks
// for every topic, so each seq must be the one before plus one. The page does
// not take the server's word for it: it counts.
//
// A number may also be missing because its event is hidden from this reader.
// The ledger tells the two apart by asking the log, through the catch-up
// request, for what lies in the hole: an event that the log would have given
// is a missed one.

const LIMIT = 256 // events in one catch-up request
const PAUSE_MS = 1000 // between two catch-up requests

export class Ledger {
  seen = 0
  missed = 0
  repeated = 0
  hidden = 0 // numbers whose events this page may not read
  unproven = 0 // numbers in holes that the log could no longer answer for
  last = null // seq of the last event or bookmark; null before the first
  #epoch = ''
  #holes = [] // {epoch, after, until}: no event came for the seqs after < seq < until
  #asking = false
  #read
  #changed

  // read(query) fetches one page of the log and returns its Response; changed()
  // is called when a hole has been judged.
  constructor(read, changed) {
    this.#read = read
    this.#changed = changed
  }

  // epoch is the timeline that last counts in.
  get epoch() {
    return this.#epoch
  }

  // checking is how many numbers wait for the log's answer.
  get checking() {
    return this.#holes.reduce((n, hole) => n + hole.until - hole.after - 1, 0)
  }

  // connected begins a stream. Only a snapshot may start anywhere; a resume has
  // to continue what was seen.
  connected({ epoch, start, since_seq: since }) {
    if (start === 'resume' && epoch === this.#epoch && this.last !== null) return
    this.#epoch = epoch
    this.last = start === 'snapshot' ? null : since
  }

  // event counts one delivered event and reports whether it is new.
  event(seq) {
    this.seen++
    if (this.last !== null && seq <= this.last) {
      this.repeated++
      return false
    }
    this.#advance(seq)
    return true
  }

  // bookmark takes a position that the server says is fully delivered: every
  // seq up to it must have been seen by now.
  bookmark(seq) {
    if (this.last === null || seq > this.last) this.#advance(seq + 1, seq)
  }

  #advance(next, last = next) {
    if (this.last !== null && next > this.last + 1) {
      this.#holes.push({ epoch: this.#epoch, after: this.last, until: next })
      this.#ask()
    }
    this.last = last
  }

  // ask judges holes one request at a time until none is left.
  async #ask() {
    if (this.#asking) return
    this.#asking = true
    while (this.#holes.length > 0) {
      const hole = this.#holes[0]
      try {
        await this.#judge(hole)
      } catch {
        // No answer: the hole stays and is asked again.
      }
      this.#changed()
      if (this.#holes.length > 0) await new Promise(done => setTimeout(done, PAUSE_MS))
    }
    this.#asking = false
  }

  async #judge(hole) {
    const response = await this.#read(new URLSearchParams({ since_seq: hole.after, epoch: hole.epoch, limit: LIMIT }))
    if (response.status >= 500 || response.status === 429) return
    if (!response.ok) {
      // Another epoch, or trimmed: nobody can tell any more.
      this.unproven += hole.until - hole.after - 1
      this.#holes.shift()
      return
    }
    const page = await response.json()
    const reached = page.has_more ? page.last_seq : Infinity
    while (this.#holes.length > 0 && this.#holes[0].after < reached) {
      const first = this.#holes[0]
      if (first.epoch !== hole.epoch) return
      const end = Math.min(first.until, reached + 1)
      const given = page.events.filter(event => event.seq > first.after && event.seq < end).length
      this.missed += given
      this.hidden += end - first.after - 1 - given
      if (end < first.until) {
        first.after = reached
        return
      }
      this.#holes.shift()
    }
  }
}
