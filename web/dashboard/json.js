// JSON as text. JSON.parse rounds large numbers and drops repeated keys, so
// what the page shows of an event is cut from the text that was delivered.

// memberStart returns where the value of a top-level member begins in the text
// of a JSON object, or -1 where there is no such member.
function memberStart(text, name) {
  let depth = 0
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (c === '{' || c === '[') depth++
    else if (c === '}' || c === ']') depth--
    else if (c === '"') {
      const end = stringEnd(text, i)
      if (depth === 1 && text[end] === ':' && text.slice(i + 1, end - 1) === name) return end + 1
      i = end - 1
    }
  }
  return -1
}

// stringEnd returns the index after the string literal that begins at start.
function stringEnd(text, start) {
  for (let i = start + 1; i < text.length; i++) {
    if (text[i] === '\\') i++
    else if (text[i] === '"') return i + 1
  }
  return text.length
}

// valueEnd returns the index after the value that begins at start.
function valueEnd(text, start) {
  let depth = 0
  for (let i = start; i < text.length; i++) {
    const c = text[i]
    if (c === '"') i = stringEnd(text, i) - 1
    else if (c === '{' || c === '[') depth++
    else if (c === '}' || c === ']') depth--
    if (depth < 0 || (depth === 0 && c === ',')) return i
  }
  return text.length
}

// member returns the text of a top-level member's value, at most limit
// characters of it, or '' where there is none. The text must be compact JSON.
export function member(text, name, limit) {
  const start = memberStart(text, name)
  if (start < 0) return ''
  const window = text.slice(start, start + limit)
  return window.slice(0, valueEnd(window, 0))
}

// indent lays compact JSON out over lines, two spaces a level, and changes
// nothing else: digits, key order and repeated keys stay as they were sent.
export function indent(text) {
  let out = ''
  let pad = '\n'
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (c === '"') {
      const end = stringEnd(text, i)
      out += text.slice(i, end)
      i = end - 1
    } else if (c === '{' || c === '[') {
      const close = text[i + 1]
      if (close === '}' || close === ']') {
        out += c + close
        i++
      } else {
        pad += '  '
        out += c + pad
      }
    } else if (c === '}' || c === ']') {
      pad = pad.slice(0, -2)
      out += pad + c
    } else if (c === ',') out += c + pad
    else if (c === ':') out += ': '
    else out += c
  }
  return out
}
