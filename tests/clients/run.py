"""Real client libraries through `sidelane proxy`, while a server stops for 200 ms each half second.

    run.py SIDELANE CACHE [CLIENT...]

CACHE is what scripts/test-clients.sh has installed. Each client runs directly to one server, for comparison, and through
the proxy to two. A client's program writes a report as JSON on its last line:

- requests: how many were answered; milliseconds: how long its reads took
- failures: what it expected and did not get
- once: names of writes that were answered; at_most_once: of writes that the client gave up

The servers count how often each write was carried out. A client fails if it has failures, if a write that was answered was
carried out never or twice, or if another one was carried out twice. One line for each client, and a last line with counts.
"""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter

SECONDS = 3
# What a program may take in all: start, work, the last request, end.
LIMIT_SECONDS = 60
STOPPED_SECONDS = 0.2
EVERY_SECONDS = 0.5

here = os.path.dirname(os.path.abspath(__file__))
sidelane, cache, only = sys.argv[1], sys.argv[2], sys.argv[3:]
scratch = tempfile.mkdtemp(prefix="sidelane-clients-")
children = []

PROGRAMS = {
    "python": [f"{cache}/python/bin/python", f"{here}/client.py"],
    "node": ["node", f"{here}/client.js"],
    "go": [f"{cache}/go/client"],
    "java": ["java", "-cp", f"{cache}/java/classes:{cache}/java/lib/*", "Client"],
}
CLIENTS = [
    ("redis-py", "python", "redis"),
    ("ioredis", "node", "redis"),
    ("go-redis", "go", "redis"),
    ("lettuce", "java", "redis"),
    ("jedis", "java", "redis"),
    ("curl", "python", "http"),
    ("wrk", "python", "http"),
    ("requests", "python", "http"),
    ("fetch", "node", "http"),
    ("net/http", "go", "http"),
    ("HttpClient", "java", "http"),
]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(command, port=None):
    """Starts a program, and waits until it listens."""
    log = open(f"{scratch}/{len(children)}.log", "w+")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    process.log = log.name
    children.append(process)
    end = time.monotonic() + 20
    while port:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"cannot start {' '.join(command)}: {open(log.name).read()}")
            time.sleep(0.02)
    return process


def start_redis(*options):
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", scratch]
    process = start([*command, *options], port)
    return process, f"127.0.0.1:{port}"


def start_http():
    port = free_port()
    return start([sys.executable, f"{here}/origin.py", str(port)], port), f"127.0.0.1:{port}"


def redis_cli(address, *command):
    port = address.split(":")[1]
    done = subprocess.run(["redis-cli", "-p", port, "--raw", *command], capture_output=True, text=True, check=True)
    return done.stdout.split()


def issue_certificate():
    """Issues a certificate for 127.0.0.1, in one file with its key; None without openssl."""
    if not shutil.which("openssl"):
        return None
    path = f"{scratch}/tls.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-subj", "/CN=clients", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.cert"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with open(path, "a") as both, open(f"{path}.cert") as cert:
        both.write(cert.read())
    return path


# The value of each counter, and the length of each list.
COUNT_WRITES = """
    local found = {}
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
        local kind = redis.call('TYPE', key).ok
        if kind == 'list' or key:find(':once:') then
            found[#found + 1] = key
            found[#found + 1] = kind == 'list' and redis.call('LLEN', key) or redis.call('GET', key)
        end
    end
    return found"""


def counts_of_redis(addresses, prefix):
    total = Counter()
    for address in addresses:
        found = redis_cli(address, "EVAL", COUNT_WRITES, "0", f"{prefix}:*")
        total.update({key: int(count) for key, count in zip(found[::2], found[1::2])})
    return total


def counts_of_http(addresses, prefix):
    total = Counter()
    for address in addresses:
        with urllib.request.urlopen(f"http://{address}/counts/{prefix}", timeout=10) as answer:
            total.update(json.load(answer))
    return total


class Hazards(threading.Thread):
    """Stops a server of each pair in turn, never both."""

    def __init__(self, pairs):
        super().__init__(daemon=True)
        self.pairs = pairs
        self.ends = threading.Event()

    def run(self):
        for turn in itertools.count():
            if self.ends.wait(EVERY_SECONDS - STOPPED_SECONDS):
                return
            stopped = [pair[turn % 2] for pair in self.pairs]
            for process in stopped:
                process.send_signal(signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            for process in stopped:
                process.send_signal(signal.SIGCONT)


class Way:
    """A way from a client to servers: what it connects to, and where its writes are counted."""

    def __init__(self, name, active, backup=None, options=(), counted=None, certificate=None):
        self.name, self.active, self.backup, self.options = name, active, backup, options
        self.certificate = certificate
        self.counted = counted or [active, *([backup] if backup else [])]

    def open(self, protocol):
        if not self.backup:
            return self.active, None
        port = free_port()
        listen = f"127.0.0.1:{port}"
        command = [sidelane, "proxy", "--listen", listen, "--active", self.active, "--backup", self.backup]
        command += ["--protocol", protocol, "--hazard", "stopped", "--json", f"{scratch}/{port}.json", *self.options]
        if not self.certificate:
            return listen, start(command, port)
        command += ["--tls-cert", self.certificate, "--tls-key", self.certificate]
        return f"https://{listen}", start(command, port)


def run_client(library, language, protocol, way, prefix):
    """Returns the report, with what the servers say of it."""
    address, proxy = way.open(protocol)
    command = [*PROGRAMS[language], library, address, prefix, str(SECONDS)]
    environment = {**os.environ, "NODE_PATH": f"{cache}/node/node_modules"}
    if way.certificate:
        environment["CURL_CA_BUNDLE"] = way.certificate
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)
        report = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        why = getattr(error, "stderr", None) or getattr(locals().get("done"), "stderr", "")
        return {"failures": [f"no report: {error!r:.200} {why!s:.500}"], "requests": 0, "milliseconds": []}
    finally:
        if proxy:
            proxy.send_signal(signal.SIGINT)
            proxy.wait()
            with open(proxy.args[proxy.args.index("--json") + 1]) as file:
                summary = json.load(file)
    # What the client gave up may still be under way.
    time.sleep(0.5)
    counts = (counts_of_redis if protocol == "redis" else counts_of_http)(way.counted, prefix)
    report["failures"] += [f"{name}: carried out {counts[name]} times" for name in report["once"] if counts[name] != 1]
    report["failures"] += [f"{name}: carried out {n} times" for name, n in counts.items() if n > 1]
    if proxy:
        report["proxy"] = summary
        report["failures"] += [f"the proxy says: {n} {what}" for what in ("failed", "cut") if (n := summary["counts"][what])]
    return report


def judge(client, ways):
    """Prints the line of a client. Whether it has passed."""
    library, language, protocol = client
    texts, failures = [], []
    for number, way in enumerate(ways):
        prefix = f"{library}-{number}".replace("/", "-")
        report = run_client(library, language, protocol, way, prefix)
        slowest = max(report["milliseconds"], default=float("nan"))
        text = f"{way.name} {report['requests']} requests, slowest read {slowest:.0f} ms"
        if counts := report.get("proxy", {}).get("counts"):
            text += f", {counts['hedges']} hedges, {counts['tied']} tied"
        texts.append(text)
        failures += [f"{way.name}: {failure}" for failure in report["failures"]]
    print(f"{'failed' if failures else 'passed'}  {library}: {'; '.join(texts)}", flush=True)
    for failure in failures[:10]:
        print(f"    {failure}", flush=True)
    if len(failures) > 10:
        print(f"    and {len(failures) - 10} more", flush=True)
    return not failures


def reason_to_skip(library, language):
    path = f"{cache}/{language}.missing"
    if os.path.exists(path):
        with open(path) as file:
            return file.read().strip()
    if library in ("curl", "wrk") and not shutil.which(library):
        return f"needs {library}"
    return None


def main():
    primary, replica, other = start_redis(), None, start_redis()
    replica = start_redis("--replicaof", *primary[1].split(":"))
    first, second = start_http(), start_http()
    for address in (primary[1], other[1]):
        redis_cli(address, "MSET", *itertools.chain(*((f"item:{i}", f"item:{i}") for i in range(100))))
    while redis_cli(replica[1], "DBSIZE") != ["100"]:
        time.sleep(0.05)
    ways = {
        "redis": [
            Way("direct", primary[1]),
            Way("two masters", primary[1], other[1]),
            Way("replica", primary[1], replica[1], ["--once-to", "first"], [primary[1]]),
        ],
        "http": [Way("direct", first[1]), Way("proxy", first[1], second[1])],
    }
    tls = Way("TLS", first[1], second[1], ["--threads", "2"], certificate=issue_certificate())
    hazards = Hazards([(primary[0], replica[0]), (primary[0], other[0]), (first[0], second[0])])
    hazards.start()
    counts = Counter()
    for library, language, protocol in CLIENTS:
        if only and library not in only:
            continue
        if reason := reason_to_skip(library, language):
            print(f"skipped {library}: {reason}", flush=True)
            counts["skipped"] += 1
            continue
        its_ways = [*ways[protocol], *([tls] if library == "curl" and tls.certificate else [])]
        counts["passed" if judge((library, language, protocol), its_ways) else "failed"] += 1
    hazards.ends.set()
    hazards.join()
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] > 0


try:
    code = main()
finally:
    for process in children:
        process.kill()
        process.wait()
    shutil.rmtree(scratch)
sys.exit(code)
