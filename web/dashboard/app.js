// The dashboard: joins the stream, the table, the ledger and the forms.

import { Cut } from './cut.js'
import { indent } from './json.js'
import { Ledger } from './ledger.js'
import { keepKey, setUpForm } from './publish.js'
import { Status } from './status.js'
import { read, Stream } from './stream.js'
import { Table } from './table.js'
import { clock, drainReason, number, plural, resyncReason } from './words.js'

const PHASES = {
  connecting: 'Connecting',
  replaying: 'Replaying',
  live: 'Live',
  waiting: 'Waiting to reconnect',
  refused: 'Refused',
}
const DETAIL_CHARS = 256 << 10

const $ = id => document.getElementById(id)
const put = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text }

let connects = 0
let resync = '' // the reason of a resync whose snapshot is still to come
let paused = '' // by whom: '' (nobody), 'reader' (the button) or 'detail' (a row is open)
let drawing = 0 // the frame that renews the numbers, or 0

const table = new Table({ tbody: $('rows'), scroll: $('scroll'), open: showDetail, changed: showTable })
const ledger = new Ledger(read, draw)
const status = new Status(statusChanged)
const stream = new Stream({
  phase() {
    document.documentElement.dataset.phase = stream.phase
    showPhase()
    $('retry').hidden = stream.phase !== 'refused'
    showTable()
    draw()
  },
  connected(data) {
    ledger.connected(data)
    if (data.start === 'snapshot') {
      table.clear()
      if (connects > 0) table.seam(`Began again with a snapshot${resync && `: ${resyncReason(resync)}`}`, 'resync')
    } else table.seam(`Reconnected, resumed from seq ${data.since_seq}`, 'resume')
    connects++
    resync = ''
  },
  event(text, cursor) {
    const { seq, time, type, topic } = JSON.parse(text)
    ledger.event(seq)
    stream.head = Math.max(stream.head, seq)
    table.add({ seq, time, type, topic, text, cursor }, stream.phase === 'live')
    draw()
  },
  bookmark(seq) {
    ledger.bookmark(seq)
    status.soon()
    draw()
  },
  resync(data) {
    resync = data.reason
    draw()
  },
  live() {
    cut.live()
  },
})
const cut = new Cut(stream, ledger)

let notReady = '' // why the server does not serve, or ''

// The server may wait for a person, and asks clients to stay away for long: a
// page that somebody looks at says why, and is back as soon as it can be.
function statusChanged() {
  const { status: word, reason } = status.latest ?? {}
  const was = notReady
  notReady = word === 'not_ready' ? reason || 'it does not say why' : ''
  if (was && !notReady && stream.phase === 'waiting') stream.open()
  else showPhase()
  draw()
}

function showPhase() {
  put('phase', PHASES[stream.phase])
  const told = stream.note === drainReason('not_ready') ? '' : stream.note
  put('phase-note', notReady ? `The server is not ready: ${notReady.replace(/\.?$/, '.')} ${told}`.trim() : stream.note)
}

// draw renews the numbers once, in the next frame.
function draw() {
  if (drawing === 0) drawing = requestAnimationFrame(showNumbers)
}

function showNumbers() {
  drawing = 0
  const { start, resync: last } = stream
  const head = Math.max(stream.head, status.latest?.epoch === ledger.epoch ? status.latest.head_seq : 0)
  put('head', String(head))
  put('lag', ledger.last === null ? '–' : number(Math.max(0, head - ledger.last)))
  if (start) {
    const how = { snapshot: 'Snapshot', resume: `Resumed from seq ${start.seq}`, live: `Live from seq ${start.seq}` }[start.kind]
    put('started', `${how}, ${clock(start.time).slice(0, 8)}`)
  }
  if (last) put('resync', `${last.reason}, ${clock(last.time).slice(0, 8)}: ${resyncReason(last.reason)}`)
  put('seen', number(ledger.seen))
  put('missed', number(ledger.missed))
  put('repeated', number(ledger.repeated))
  $('verdict').dataset.kind = ledger.missed + ledger.repeated > 0 ? 'bad' : ledger.seen > 0 && ledger.checking === 0 ? 'good' : 'none'
  put('verdict-note', [
    'The page checks by itself that every seq follows the one before.',
    ledger.checking > 0 && `Asking the log about ${plural(ledger.checking, 'number')} that did not come…`,
    ledger.hidden > 0 && `${plural(ledger.hidden, 'number belongs', 'numbers belong')} to events that this page may not read.`,
    ledger.unproven > 0 && `${plural(ledger.unproven, 'number')} could not be checked: the log no longer has them.`,
  ].filter(Boolean).join(' '))
  $('cut').setAttribute('aria-disabled', String(!stream.connectionId))
}

function showTable() {
  put('pause', table.paused ? `Continue${table.waiting ? ` · ${number(table.waiting)} new` : ''}` : 'Pause')
  $('empty').hidden = table.published > 0 || stream.phase !== 'live'
  showNewest()
}

function showNewest() {
  $('newest').hidden = $('scroll').scrollTop < 40
}

function showDetail(event) {
  if (!paused) {
    // A row that is being read must not be pushed out by newer ones.
    paused = 'detail'
    table.pause(true)
  }
  const fields = { Cursor: event.cursor, Size: plural(event.text.length, 'character') }
  $('detail-fields').replaceChildren(...Object.entries(fields).flatMap(([name, value]) => {
    const term = document.createElement('dt')
    const description = document.createElement('dd')
    term.textContent = name
    description.textContent = value
    return [term, description]
  }))
  put('detail-title', `Event ${event.seq}`)
  const rest = event.text.length - DETAIL_CHARS
  put('detail-data', indent(event.text.slice(0, DETAIL_CHARS)) + (rest > 0 ? `\n… ${plural(rest, 'more character')}` : ''))
  $('detail').hidden = false
}

function closeDetail() {
  if ($('detail').hidden) return
  $('detail').hidden = true
  table.release(true)
  if (paused === 'detail') setPaused('')
}

function setPaused(by) {
  paused = by
  table.pause(by !== '')
}

$('pause').addEventListener('click', () => setPaused(paused ? '' : 'reader'))
$('newest').addEventListener('click', () => {
  $('scroll').scrollTo({ top: 0 })
  $('pause').focus() // the button is about to go
})
$('scroll').addEventListener('scroll', showNewest, { passive: true })
$('detail-close').addEventListener('click', closeDetail)
$('cut').addEventListener('click', () => cut.run())
$('retry').addEventListener('click', () => stream.open())
document.querySelector('.events').addEventListener('keydown', event => {
  if (event.key === 'Escape') closeDetail()
})
// A page that comes back out of the browser's history has lost its stream.
window.addEventListener('pageshow', event => {
  if (event.persisted && stream.closed) stream.open()
})

const base = location.href.replace(/[^/]*$/, '')
put('curl', `curl -H 'Content-Type: application/json' -d '{"type":"hello","data":{"n":1}}' ${base}api/v1/events`)
keepKey()
setUpForm()
stream.open()
