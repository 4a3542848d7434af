// The page's one EventSource. The browser reconnects by itself and sends its
// cursor; this file only watches, names what it sees, and steps in where a
// browser gives up: after an answer other than 200, and on a connection that
// has gone silent without closing.

import { drainReason, resyncReason } from './words.js'

// Unnamed, so that onmessage gets events of every type. Topics under gapless.
// come only where a pattern names them.
const TOPICS = [['topic', '>'], ['topic', 'gapless.>']]
const RETRY_SECONDS = 5
const SILENT_HEARTBEATS = 2.5
const CROWDED_MS = 8000
const CROWDED = 'No answer yet. Over HTTP/1.1 a browser opens six connections to a server: other tabs may hold them all.'

// read fetches one page of the log for the same topics as the stream.
export function read(query) {
  for (const [name, value] of TOPICS) query.append(name, value)
  return fetch(`api/v1/events?${query}`, { signal: AbortSignal.timeout(10_000) })
}

// seqOf reads the seq inside a cursor. To other clients a cursor is opaque; this
// page comes with the server whose cursors it reads.
const seqOf = cursor => Number(cursor.split('-')[1])

// Stream keeps the connection's state, for anyone to read:
//
//   phase         connecting, replaying, live, waiting (the browser will return
//                 by itself) or refused (the page will, after a few seconds)
//   note          one sentence on how it came to that, or ''
//   connectionId  the server's name for this connection, or ''
//   start         {kind, seq, time} of the latest (re)connect, or null
//   resync        {reason, time} of the latest resync, or null
//   head          the largest seq that the stream has told of
//
// on is called with: phase(), connected(data), event(text, cursor), bookmark(seq),
// resync(data), live().
export class Stream {
  phase = 'connecting'
  note = ''
  connectionId = ''
  start = null
  resync = null
  head = 0
  #on
  #source = null
  #cursor = ''
  #ending = '' // what the server said before it closed the stream
  #silent = 0 // timer: nothing heard for too long
  #heardAt = 0
  #heartbeat = 15_000
  #return = 0 // timer: counts down to the next try

  constructor(on) {
    this.#on = on
  }

  // open starts the stream, or starts it anew from the last cursor.
  open() {
    this.close()
    const query = new URLSearchParams([['named', 'false'], ...TOPICS])
    // A cursor that has died meanwhile does no harm here: the resync answer
    // gives the browser a new one, and its header wins over the URL.
    if (this.#cursor) query.set('cursor', this.#cursor)
    const source = new EventSource(`events?${query}`)
    this.#source = source
    const control = (name, take) => source.addEventListener(name, message => {
      this.#heard(message)
      take(JSON.parse(message.data), message)
    })
    source.onopen = () => {
      clearTimeout(this.#silent)
      this.#enter('connecting', 'The server has answered.')
    }
    source.onerror = () => this.#lost()
    source.onmessage = message => {
      this.#heard(message)
      this.#on.event(message.data, message.lastEventId)
    }
    control('server.connected', data => {
      this.connectionId = data.connection_id
      this.start = { kind: data.start, seq: data.since_seq, time: new Date() }
      this.head = data.head_seq
      this.#heartbeat = data.heartbeat_ms || this.#heartbeat
      this.#listen()
      this.#on.connected(data)
      this.#enter('replaying', data.start === 'resume' ? `From seq ${data.since_seq}.` : '')
    })
    control('server.live', (data, message) => {
      this.#bookmark(data, message)
      this.#enter('live', '')
      this.#on.live()
    })
    control('heartbeat', (data, message) => this.#bookmark(data, message))
    control('resync_required', data => {
      this.resync = { reason: data.reason, time: new Date() }
      this.#ending = `Resync: ${resyncReason(data.reason)}.`
      this.#on.resync(data)
    })
    control('server.draining', data => {
      this.#ending = drainReason(data.reason)
    })
    this.#enter('connecting', '')
    this.#silent = setTimeout(() => this.#enter('connecting', CROWDED), CROWDED_MS)
  }

  close() {
    clearInterval(this.#return)
    clearTimeout(this.#silent)
    this.#source?.close()
  }

  // closed tells whether the browser has given the connection up.
  get closed() {
    return this.#source?.readyState === EventSource.CLOSED
  }

  #enter(phase, note) {
    this.phase = phase
    this.note = note
    this.#on.phase()
  }

  #heard(message) {
    this.#cursor = message.lastEventId || this.#cursor
    this.#heardAt = performance.now()
  }

  // listen opens the stream anew once nothing has been heard for too long. One
  // timer, moved on only when it fires: events may come by the thousand.
  #listen() {
    clearTimeout(this.#silent)
    const left = this.#heardAt + this.#heartbeat * SILENT_HEARTBEATS - performance.now()
    if (left <= 0) this.open()
    else this.#silent = setTimeout(() => this.#listen(), left)
  }

  #bookmark(data, message) {
    this.head = data.head_seq
    if (message.lastEventId) this.#on.bookmark(seqOf(message.lastEventId))
  }

  #lost() {
    clearTimeout(this.#silent)
    this.connectionId = ''
    const why = this.#ending
    this.#ending = ''
    if (!this.closed) {
      this.#enter('waiting', why || 'The connection ended. The browser returns by itself.')
      return
    }
    let seconds = RETRY_SECONDS
    const tick = () => {
      if (seconds === 0) return this.open()
      this.#enter('refused', `${why || 'The server or a proxy refused the stream.'} Next try in ${seconds} s.`)
      seconds--
    }
    clearInterval(this.#return)
    this.#return = setInterval(tick, 1000)
    tick()
  }
}
