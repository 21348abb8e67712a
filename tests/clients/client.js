// Node's clients: client.js LIBRARY ADDRESS PREFIX SECONDS
//
// The last line of the output is a report as JSON; run.py says what is in it.
'use strict';

const { createHash } = require('node:crypto');

const [library, address, prefix, seconds] = process.argv.slice(2);
const [host, port] = address.split(':');
const report = { requests: 0, failures: [], once: [], at_most_once: [], milliseconds: [] };
// Longer than any hazard: what takes longer is lost.
const PATIENCE_MS = 10_000;
const LONG = 1 << 20;

function expect(what, got, wanted) {
  report.requests += 1;
  const [seen, right] = [JSON.stringify(got) ?? 'undefined', JSON.stringify(wanted)];
  if (seen !== right) report.failures.push(`${what}: ${seen.slice(0, 200)}, not ${right.slice(0, 100)}`);
}

async function timed(call) {
  const start = performance.now();
  const result = await call();
  report.milliseconds.push(performance.now() - start);
  return result;
}

// The name of the error, or what was returned.
async function outcome(call) {
  try {
    return await call();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

// Runs each loop, with numbers that no other one gets, until the time is up.
function work(...loops) {
  const end = performance.now() + 1000 * Number(seconds);
  return Promise.all(loops.map(async (loop, first) => {
    try {
      for (let number = first; performance.now() < end; number += loops.length) await loop(number);
    } catch (error) {
      expect(loop.name, `${error}: ${error.cause}`, 'no error');
    }
  }));
}

async function ioredis() {
  const { Redis } = require('ioredis');
  // A client that sends a command again after a lost connection would hide the loss.
  const options = { host, port: Number(port), maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false };
  const [reader, writer] = [new Redis(options), new Redis(options)];
  writer.defineCommand('incrByScript', { numberOfKeys: 1, lua: "return redis.call('INCR', KEYS[1])" });

  async function read(number) {
    const key = `item:${number % 100}`;
    expect('GET', await timed(() => reader.get(key)), key);
    const keys = Array.from({ length: 10 }, (_, i) => `item:${i}`);
    expect('10 GET at once', await Promise.all(keys.map((key) => reader.get(key))), keys);
  }

  async function write(number) {
    const name = `${prefix}:once:${number}`;
    expect('INCR and GET at once', await Promise.all([writer.incr(name), writer.get(name)]), [1, '1']);
    report.once.push(name);
    const pipeline = number % 10 === 0 ? writer.multi() : writer.pipeline();
    const replies = await pipeline.incr(name + 'p').rpush(`${prefix}:list:${number}`, 'a').get(name + 'p').exec();
    expect('pipeline of writes', replies, [[null, 1], [null, 1], [null, '1']]);
    report.once.push(name + 'p');
    if (number % 10 === 1) {
      expect('EVALSHA', await writer.incrByScript(name + 's'), 1);
      report.once.push(name + 's');
    }
    if (number % 10 === 2) {
      const value = 'x'.repeat(900_000);
      expect('SET of 900 kB', await writer.set(`${prefix}:long:${number}`, value), 'OK');
      expect('GET of 900 kB', (await writer.get(`${prefix}:long:${number}`)) === value, true);
    }
    if (number % 50 === 3) {
      const hasty = new Redis({ ...options, commandTimeout: 100 });
      expect('BLPOP in 0.1 s', await outcome(() => hasty.blpop(`${prefix}:none`, 0)), 'Error: Command timed out');
      hasty.disconnect();
    }
  }

  await work(read, read, write, write);
  reader.disconnect();
  writer.disconnect();
}

async function fetchClient() {
  const url = `http://${address}`;
  const limited = (time) => ({ signal: AbortSignal.timeout(time) });
  const text = async (path, options) => (await fetch(url + path, { ...limited(PATIENCE_MS), ...options })).text();

  async function get(number) {
    expect('GET', await timed(() => text(`/item/${number}`)), `item ${number}`);
    if (number % 5 === 0) expect('GET in chunks', (await text('/long/200000')).length, 200_000);
  }

  async function post(number) {
    const name = `${prefix}:${number}`;
    const body = name.repeat(number % 5 === 2 ? Math.floor(LONG / name.length) : 1);
    const sum = createHash('sha256').update(body).digest('hex');
    expect('POST', await text(`/once/${name}`, { method: 'POST', body }), sum);
    report.once.push(name);
    if (number % 10 === 2) {
      report.at_most_once.push(name + 'late');
      const late = await outcome(() => text(`/slow/${name}late`, { method: 'POST', body: 'x', ...limited(100) }));
      expect('POST in 0.1 s', late, 'TimeoutError: The operation was aborted due to timeout');
    }
    if (number % 10 === 3) {
      report.at_most_once.push(name + 'cancelled');
      const cancel = new AbortController();
      setTimeout(() => cancel.abort(), 20);
      const options = { method: 'POST', body: 'x', signal: cancel.signal };
      const cancelled = await outcome(() => text(`/slow/${name}cancelled`, options));
      expect('cancelled POST', cancelled, 'AbortError: This operation was aborted');
    }
  }

  await work(get, get, post, post);
}

({ ioredis, fetch: fetchClient })[library]().then(() => {
  process.stdout.write(JSON.stringify(report) + '\n', () => process.exit());
});
