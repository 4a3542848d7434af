// Drives one browser for the Go tests: a command a line on stdin, an answer a line on stdout, both JSON.
// The same script speaks to Chromium (DevTools protocol) and Firefox (WebDriver BiDi).
//
//   node drive.mjs chromium|firefox EXECUTABLE PROFILE-DIR
//
// Commands: open {url, dark, width}, eval {page, expr}, wait {page, expr, ms}, click {page, selector},
// key {page, key}, log {page}, close {page}, quit.
// An answer is {id, result} or {id, error}.
import puppeteer from 'puppeteer-core';
import readline from 'node:readline';

const [kind, executablePath, userDataDir] = process.argv.slice(2);

const chromiumArgs = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
  // Timers of pages that are not in front must run on time: several pages are open at once.
  '--disable-background-timer-throttling', '--disable-renderer-backgrounding',
];

// Firefox otherwise looks for updates, portals and add-on lists at its start. Over BiDi a page's colour scheme
// cannot be chosen, so its pages are always dark (0); Chromium shows them light where dark is not asked for.
const firefoxPrefs = {
  'layout.css.prefers-color-scheme.content-override': 0,
  'app.update.enabled': false,
  'browser.safebrowsing.malware.enabled': false,
  'browser.safebrowsing.phishing.enabled': false,
  'captivedetect.canonicalURL': '',
  'datareporting.policy.dataSubmissionEnabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'data:,',
  'toolkit.telemetry.enabled': false,
};

const browser = await puppeteer.launch({
  browser: kind === 'firefox' ? 'firefox' : 'chrome',
  protocol: kind === 'firefox' ? 'webDriverBiDi' : 'cdp',
  executablePath,
  userDataDir,
  headless: true,
  acceptInsecureCerts: true,
  timeout: 90_000,
  protocolTimeout: 120_000,
  ...(kind === 'firefox' ? { extraPrefsFirefox: firefoxPrefs } : { args: chromiumArgs }),
});

const pages = new Map();
let lastPage = 0;

function pageOf(command) {
  const entry = pages.get(command.page);
  if (!entry) throw new Error(`no page ${command.page}`);
  return entry;
}

const commands = {
  async open({ url, dark, width }) {
    const page = await browser.newPage();
    const entry = { page, console: [], errors: [], requests: [] };
    page.on('console', (m) => entry.console.push({ level: m.type(), text: m.text() }));
    page.on('pageerror', (e) => entry.errors.push(String(e?.message ?? e)));
    page.on('request', (r) => entry.requests.push(r.url()));
    if (width) await page.setViewport({ width, height: 800 });
    if (dark && kind !== 'firefox') await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
    await page.goto(url, { waitUntil: 'domcontentloaded', timeout: 60_000 });
    pages.set(++lastPage, entry);
    return lastPage;
  },
  async eval(c) {
    return await pageOf(c).page.evaluate(c.expr);
  },
  async wait(c) {
    await pageOf(c).page.waitForFunction(c.expr, { timeout: c.ms, polling: 25 });
    return true;
  },
  async click(c) {
    await pageOf(c).page.click(c.selector);
    return true;
  },
  async key(c) {
    await pageOf(c).page.keyboard.press(c.key);
    return true;
  },
  async log(c) {
    const { console, errors, requests } = pageOf(c);
    return { console, errors, requests };
  },
  async close(c) {
    const { page } = pageOf(c);
    pages.delete(c.page);
    await page.close();
    return true;
  },
};

function answer(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

answer({ id: 0, result: await browser.version() });

// Commands run side by side, so that a long wait on one page does not hold up another.
for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.op === 'quit') break;
  Promise.resolve()
    .then(() => commands[command.op](command))
    .then((result) => answer({ id: command.id, result: result ?? null }))
    .catch((e) => answer({ id: command.id, error: String(e?.message ?? e) }));
}
await browser.close();
process.exit(0);
