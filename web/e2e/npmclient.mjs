// Reads a stream with npm's `eventsource` and prints every event as one JSON line.
//
//   node npmclient.mjs URL TYPE,TYPE,…
import { EventSource } from 'eventsource';

const [url, types] = process.argv.slice(2);
const source = new EventSource(url);
const print = (e) => process.stdout.write(
  `${JSON.stringify({ type: e.type, id: e.lastEventId, data: e.data })}\n`);

source.onopen = () => process.stdout.write('{"type":"(open)"}\n');
source.onmessage = print;
for (const type of types.split(',')) source.addEventListener(type, print);

// The library does not keep the process alive while it waits to reconnect.
setInterval(() => {}, 60_000);
