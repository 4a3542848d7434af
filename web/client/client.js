// Follows a Gapless stream with the browser's own EventSource. Experimental:
// names and behaviour may still change.
//
//   import { subscribe } from '/client.js'
//   const list = []
//   subscribe('/events', {
//     onSnapshot: () => { list.length = 0 },
//     onEvent: event => list.push(event),
//   })
//
// An EventSource resumes by itself after a clean end or a cut. This file steps in
// where browsers give up, after an answer other than 200, and where they wait for
// ever, on an open and silent connection, with a new EventSource from the cursor.

const SILENT_HEARTBEATS = 2.5
const SILENT_MS = 1_000 // at least, however fast the heartbeats are
const ANSWER_MS = 90_000 // for a stream to begin: a retry: of up to 60 s, and an answer
const RETURN_MS = { least: 2_000, most: 30_000 }

// subscribe opens the stream at url, whose own parameters stay, but for a position
// once there is a cursor. It returns { close(), state, cursor, connectionId }.
//
//   topics, types   lists of patterns and of exact types
//   start, format   as the parameters of GET /events
//   onEvent(event, cursor)   the parsed envelope; with format raw, the text
//   onSnapshot()    retained events follow, from the first: forget all state
//   onLive()        what was there has been delivered
//   onResync(why)   the position was lost, and the stream begins anew as start
//                   says. With start live: load your state again now
//   onState(state, detail)   connecting; replaying: snapshot, resume or live;
//                   live; waiting: lost, refused, silent, resync, or why the
//                   server closed (shutdown, cut, …); closed, by close(), for good
//
// What a handler throws goes to reportError and stops nothing: the event counts as
// delivered. Promises are not awaited. The cursor moves on once onEvent is done.
export function subscribe(url, options = {}) {
  const { topics = [], types = [], start, format, onEvent, onSnapshot, onLive, onResync, onState } = options
  const address = new URL(url, globalThis.document?.baseURI ?? location.href)
  const query = address.searchParams
  query.set('named', 'false')
  for (const topic of [topics].flat()) query.append('topic', topic)
  for (const type of [types].flat()) query.append('type', type)
  for (const [name, value] of Object.entries({ start, format })) if (value) query.set(name, value)
  const parse = query.get('format') === 'raw' ? text => text : JSON.parse

  let source = null // the EventSource that counts, if any
  let state = 'connecting'
  let detail // none told yet
  let cursor = ''
  let connectionId = '' // of the stream that server.connected began
  let ending = '' // why the server closes the stream
  let tries = 0 // new EventSources since the stream was last live
  let silence = 0 // ms without a block that are too many
  let heardAt, patience // the EventSource is given up so many ms after it was heard
  let timer = 0 // watches an EventSource, or waits to make one

  const call = (handler, ...values) => {
    try { handler?.(...values) } catch (error) { reportError(error) }
  }
  const enter = (next, why) => {
    if (state === 'closed' || (state === next && detail === why)) return
    state = next
    detail = why
    call(onState, next, why)
  }

  // One timer, moved on only when it fires: events may come by the thousand.
  const watch = () => {
    const left = heardAt + patience - performance.now()
    if (left > 0) timer = setTimeout(watch, Math.min(left, 2 ** 31 - 1))
    else comeBack('silent')
  }
  const expectWithin = ms => {
    heardAt = performance.now()
    patience = ms
    clearTimeout(timer)
    watch()
  }
  const leave = () => {
    clearTimeout(timer)
    source?.close()
    source = null
    connectionId = ''
  }
  // The delay doubles, and half of it is chance: many pages may be coming back.
  const comeBack = why => {
    leave()
    const delay = Math.min(RETURN_MS.most, RETURN_MS.least * 2 ** ++tries)
    timer = setTimeout(open, (delay / 2) * (1 + Math.random()))
    enter('waiting', why)
  }

  const open = () => {
    if (cursor) { // counts until the browser has an id of its own: its header wins
      for (const position of ['cursor', 'since_seq']) query.delete(position)
      query.set('last_event_id', cursor)
    }
    const opened = source = new EventSource(address)
    const on = (name, take) => opened.addEventListener(name, message => {
      // A stream begins with server.connected, or is one resync_required: else it is
      // no gateway's, and neither is its id.
      const begins = name === 'server.connected' || name === 'resync_required'
      if (opened !== source || (!connectionId && !begins)) return
      take(message)
      cursor = message.lastEventId || cursor
      heardAt = performance.now() // not earlier: a handler may take long
    })
    on('server.connected', ({ data }) => {
      const connected = JSON.parse(data)
      connectionId = connected.connection_id
      ending = ''
      silence = Math.max(SILENT_MS, connected.heartbeat_ms * SILENT_HEARTBEATS)
      // A large event on a slow line is silence until it is whole: each try has more time.
      expectWithin(silence * 2 ** Math.min(tries, 4))
      if (connected.start === 'snapshot') call(onSnapshot)
      enter('replaying', connected.start)
    })
    on('message', ({ data, lastEventId }) => call(() => onEvent?.(parse(data), lastEventId)))
    on('server.live', () => {
      tries = 0
      expectWithin(silence)
      enter('live', '')
      if (state === 'live') call(onLive)
    })
    on('heartbeat', () => {})
    on('resync_required', ({ data }) => {
      ending = 'resync'
      call(onResync, JSON.parse(data).reason)
    })
    opened.addEventListener('server.draining', ({ data }) => { ending = JSON.parse(data).reason })
    opened.onerror = () => {
      if (opened !== source) return
      connectionId = ''
      if (opened.readyState === EventSource.CLOSED) return comeBack('refused')
      expectWithin(ANSWER_MS)
      enter('waiting', ending || 'lost')
    }
    expectWithin(ANSWER_MS)
    enter('connecting', '')
  }

  // Before any handler runs, the caller has what subscribe returns.
  queueMicrotask(() => { if (state !== 'closed') open() })
  return {
    close() { leave(); enter('closed', '') },
    get state() { return state },
    get cursor() { return cursor },
    get connectionId() { return connectionId },
  }
}
