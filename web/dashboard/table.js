// The live table. It keeps the newest few hundred rows and touches the page at
// most once a frame, however fast events come. Text goes in as text only.

import { member } from './json.js'
import { clock } from './words.js'

const MAX_ROWS = 300
const MAX_CHARS = 16 << 20 // of all rows together, so that large events cannot fill the tab's memory
const PREVIEW_CHARS = 400
const FRESH_ROWS = 20 // more at once than this and highlighting would only flicker
const PAGE_ROWS = 10

// Table fills tbody. open(event) is called when the reader opens a row, and
// changed() when something around the table may have to follow.
export class Table {
  paused = false
  waiting = 0 // events that came while paused
  published = 0 // events in the table that a client published
  #tbody
  #scroll
  #open
  #changed
  #pending = [] // rows to come, oldest first: {event} or {seam}
  #pendingChars = 0
  #clear = false // the next frame begins with an empty table
  #frame = 0
  #items = new WeakMap() // row element → its item
  #chars = 0
  #current = null // the one row that Tab reaches
  #touched = false // the reader chose current, so it must not follow the newest
  #fresh = false

  constructor({ tbody, scroll, open, changed }) {
    this.#tbody = tbody
    this.#scroll = scroll
    this.#open = open
    this.#changed = changed
    tbody.addEventListener('click', event => this.#choose(event.target.closest('tr.event'), true))
    tbody.addEventListener('keydown', event => this.#key(event))
  }

  // add shows an event: {seq, time, type, topic, text, cursor}. fresh rows light
  // up for a moment.
  add(event, fresh) {
    if (this.paused) this.waiting++
    this.#fresh = fresh
    this.#queue({ event, chars: event.text.length })
  }

  // seam shows a line across the table where one stream ended and the next
  // began: kind is resume or resync.
  seam(text, kind) {
    this.#queue({ seam: text, kind, chars: 0 })
  }

  // clear empties the table. A paused table stays as it is until it goes on.
  clear() {
    this.#pending = []
    this.#pendingChars = 0
    this.#clear = true
    this.waiting = 0
    this.#schedule()
  }

  pause(paused) {
    this.paused = paused
    if (!paused) this.waiting = 0
    this.#schedule()
    this.#changed()
  }

  // release takes the mark off the chosen row and gives it the focus back.
  release(focus) {
    const row = this.#current
    row?.setAttribute('aria-selected', 'false')
    if (focus) (row ?? this.#scroll).focus({ preventScroll: !row })
  }

  #queue(item) {
    this.#pending.push(item)
    // A hidden tab gets no frames, a paused table takes none: keep what can show.
    this.#pendingChars += item.chars
    const excess = () => this.#pending.length > MAX_ROWS || (this.#pendingChars > MAX_CHARS && this.#pending.length > 1)
    while (excess()) this.#pendingChars -= this.#pending.shift().chars
    this.#schedule()
  }

  #schedule() {
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.#draw())
  }

  #draw() {
    this.#frame = 0
    if (this.paused) return this.#changed()
    if (this.#clear) {
      this.#tbody.replaceChildren()
      this.#clear = false
      this.#chars = 0
      this.published = 0
      this.#current = null
      this.#touched = false
    }
    const items = this.#pending
    this.#pending = []
    this.#pendingChars = 0
    const fragment = document.createDocumentFragment()
    for (const item of items) fragment.prepend(this.#row(item, this.#fresh && items.length <= FRESH_ROWS))
    const focused = this.#tbody.contains(document.activeElement)
    this.#tbody.prepend(fragment)
    while (this.#tbody.rows.length > MAX_ROWS || (this.#chars > MAX_CHARS && this.#tbody.rows.length > 1)) this.#drop()
    this.#reach(this.#touched && this.#current ? this.#current : this.#tbody.querySelector('tr.event'))
    if (focused && !this.#tbody.contains(document.activeElement)) this.#current?.focus({ preventScroll: true })
    this.#changed()
  }

  // drop removes the oldest row.
  #drop() {
    const row = this.#tbody.lastElementChild
    const { event, chars } = this.#items.get(row)
    this.#chars -= chars
    if (event && !event.topic.startsWith('gapless.')) this.published--
    if (row === this.#current) {
      this.#current = null
      this.#touched = false
    }
    row.remove()
  }

  #row(item, fresh) {
    const row = document.createElement('tr')
    this.#items.set(row, item)
    this.#chars += item.chars
    const cell = (name, text) => {
      const td = row.insertCell()
      td.className = name
      td.textContent = text
      return td
    }
    if (item.seam) {
      row.className = `seam ${item.kind}`
      cell('', item.seam).colSpan = 5
      return row
    }
    const { event } = item
    if (!event.topic.startsWith('gapless.')) this.published++
    row.className = fresh ? 'event fresh' : 'event'
    row.tabIndex = -1
    row.setAttribute('aria-selected', 'false')
    cell('time', clock(new Date(event.time)))
    cell('seq', String(event.seq))
    cell('type', event.type).title = event.type
    cell('topic', event.topic).title = event.topic
    cell('data', member(event.text, 'data', PREVIEW_CHARS))
    return row
  }

  // reach makes row the one that Tab stops at.
  #reach(row) {
    if (row === this.#current) {
      if (row) row.tabIndex = 0
      return
    }
    if (this.#current) this.#current.tabIndex = -1
    this.#current = row
    if (row) row.tabIndex = 0
  }

  #choose(row, open) {
    if (!row) return
    this.#current?.setAttribute('aria-selected', 'false')
    this.#reach(row)
    this.#touched = true
    row.focus({ preventScroll: true })
    if (open) {
      row.setAttribute('aria-selected', 'true')
      this.#open(this.#items.get(row).event)
    }
    // Last, since opening takes room from the table.
    row.scrollIntoView({ block: 'nearest' })
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return
    const rows = [...this.#tbody.querySelectorAll('tr.event')]
    const at = rows.indexOf(event.target.closest('tr.event'))
    const to = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + PAGE_ROWS, PageUp: at - PAGE_ROWS, Home: 0, End: rows.length - 1,
      Enter: at, ' ': at,
    }[event.key]
    if (to === undefined || at < 0) return
    event.preventDefault()
    // Moving while a row is open opens the next one in its place.
    const open = to === at || this.#current?.getAttribute('aria-selected') === 'true'
    this.#choose(rows[Math.min(Math.max(to, 0), rows.length - 1)], open)
  }
}
