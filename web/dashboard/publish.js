// The publish form, and the key that it shares with the cut button.

import { problem } from './words.js'

const KEY = 'gapless.publish-key'

// authorization returns the headers that present the publish key, if there is one.
export function authorization() {
  const key = document.getElementById('key').value.trim()
  return key ? { Authorization: `Bearer ${key}` } : {}
}

// keepKey holds the key for this tab only, so that a reload does not lose it.
export function keepKey() {
  const field = document.getElementById('key')
  try {
    field.value = sessionStorage.getItem(KEY) ?? ''
    field.addEventListener('input', () => sessionStorage.setItem(KEY, field.value))
  } catch {
    // Storage is switched off: the field itself is memory enough.
  }
  field.closest('details').open = field.value !== ''
}

// answer writes the outcome of something that the reader asked for.
export function answer(id, kind, text) {
  const output = document.getElementById(id)
  output.dataset.kind = kind
  output.textContent = text
  output.scrollIntoView({ block: 'nearest' })
}

function isJSON(text) {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

// payload is the JSON text to send for what stands in the data field: JSON goes
// as it was typed, digit for digit, anything else as one JSON string.
const payload = text => (isJSON(text) ? text : JSON.stringify(text))

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return 'page-' + Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('')
}

// setUpForm makes the form publish.
export function setUpForm() {
  const form = document.getElementById('publish')
  const { type, topic, data } = form.elements
  const button = form.querySelector('[type="submit"]')
  const kind = document.getElementById('data-kind')
  const describe = () => {
    kind.textContent = isJSON(data.value) ? 'Goes as JSON' : 'Not JSON: goes as text'
  }
  data.addEventListener('input', describe)
  describe()

  // An event whose answer was lost may have been stored. It is sent again under
  // the same id, so that it cannot be stored twice.
  let unanswered = null
  let busy = false

  form.addEventListener('submit', async event => {
    event.preventDefault()
    if (busy) return
    busy = true
    button.setAttribute('aria-disabled', 'true') // not disabled: it would lose the focus
    const fields = [
      type.value && `"type":${JSON.stringify(type.value)}`,
      topic.value && `"topic":${JSON.stringify(topic.value)}`,
      `"data":${payload(data.value)}`,
    ].filter(Boolean).join(',')
    if (unanswered?.fields !== fields) unanswered = { fields, id: newId() }
    answer('publish-answer', 'wait', 'Publishing…')
    try {
      const response = await fetch('api/v1/events', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', ...authorization() },
        body: `{"id":"${unanswered.id}",${fields}}`,
        signal: AbortSignal.timeout(15_000),
      })
      if (response.ok) {
        const [stored] = (await response.json()).events
        answer('publish-answer', 'good', `${response.status} · seq ${stored.seq}${stored.duplicate ? ' · it was stored already' : ''}`)
        unanswered = null
      } else {
        if (response.status === 401) document.getElementById('key').closest('details').open = true
        answer('publish-answer', 'bad', await problem(response))
        if (response.status < 500) unanswered = null
      }
    } catch {
      answer('publish-answer', 'bad', 'No answer. The event may have been stored or not; publishing it again from here cannot store it twice.')
    }
    busy = false
    button.removeAttribute('aria-disabled')
  })

  data.addEventListener('keydown', event => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit()
  })
}
