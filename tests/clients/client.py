"""Python's clients, and those of the command line: client.py LIBRARY ADDRESS PREFIX SECONDS

The last line of the output is a report as JSON; run.py says what is in it.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

library, address, prefix, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
host, port = address.split("://")[-1].split(":")
report = {"requests": 0, "failures": [], "once": [], "at_most_once": [], "milliseconds": []}
lock = threading.Lock()
# Longer than any hazard: what takes longer is lost.
PATIENCE = 10
LONG = 1 << 20
SCRIPT = "return redis.call('INCR', KEYS[1])"


def expect(what, got, wanted):
    with lock:
        report["requests"] += 1
        if got != wanted:
            report["failures"].append(f"{what}: {got!r:.200}, not {wanted!r:.100}")


def timed(call):
    start = time.monotonic()
    result = call()
    with lock:
        report["milliseconds"].append(1000 * (time.monotonic() - start))
    return result


def once(name):
    with lock:
        report["once"].append(name)


def at_most_once(name):
    with lock:
        report["at_most_once"].append(name)
    return name


def work(*loops):
    """Runs each loop in a thread, with numbers that no other one gets, until the time is up."""
    end = time.monotonic() + seconds

    def run(loop, first):
        number = first
        try:
            while time.monotonic() < end:
                loop(number)
                number += len(loops)
        except Exception as error:  # whatever it is, it is a failure of the client
            expect(f"{loop.__name__} {number}", repr(error), "no error")

    threads = [threading.Thread(target=run, args=(loop, first)) for first, loop in enumerate(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def redis_py():
    import redis

    def connect(timeout=PATIENCE, **options):
        return redis.Redis(host=host, port=int(port), socket_timeout=timeout, retry=None, **options)

    reader, hasty = connect(), connect(0.1)
    # A client reads what it has written on the same connection, so each thread that writes has one alone.
    writers = [connect(max_connections=1) for _ in range(2)]

    def read(number):
        key = f"item:{number % 100}"
        expect("GET", timed(lambda: reader.get(key)), key.encode())
        pipeline = reader.pipeline(transaction=False)
        keys = [f"item:{i}" for i in range(10)]
        for key in keys:
            pipeline.get(key)
        expect("pipeline of GET", pipeline.execute(), [key.encode() for key in keys])

    def write(number):
        client = writers[number % 2]
        script = client.register_script(SCRIPT)
        name = f"{prefix}:once:{number}"
        expect("INCR", client.incr(name), 1)
        once(name)
        expect("GET after INCR", client.get(name), b"1")
        pipeline = client.pipeline(transaction=number % 10 == 0)
        pipeline.incr(name + "p")
        pipeline.rpush(f"{prefix}:list:{number}", "a")
        pipeline.get(name + "p")
        expect("pipeline of writes", pipeline.execute(), [1, 1, b"1"])
        once(name + "p")
        if number % 10 == 1:
            expect("EVALSHA", script(keys=[name + "s"]), 1)
            once(name + "s")
        if number % 10 == 2:
            value = b"x" * 900_000
            expect("SET of 900 kB", client.set(f"{prefix}:long:{number}", value), True)
            expect("GET of 900 kB", client.get(f"{prefix}:long:{number}") == value, True)
        if number % 50 == 3:
            expect("BLPOP in 0.1 s", outcome(lambda: hasty.blpop([f"{prefix}:none"], 0)), redis.exceptions.TimeoutError)

    work(read, read, write, write)


def outcome(call):
    """The kind of error, or what was returned."""
    try:
        return call()
    except Exception as error:
        return type(error)


def requests():
    import requests

    # By default ten connections are kept, without a retry.
    session = requests.Session()
    url = f"http://{address}"

    def get(number):
        answer = timed(lambda: session.get(f"{url}/item/{number}", timeout=PATIENCE))
        expect("GET", (answer.status_code, answer.text), (200, f"item {number}"))
        if number % 5 == 0:
            expect("GET in chunks", len(session.get(f"{url}/long/200000", timeout=PATIENCE).content), 200_000)

    def post(number):
        name = f"{prefix}:{number}"
        body = name.encode() * (LONG // len(name) if number % 5 == 2 else 1)
        answer = session.post(f"{url}/once/{name}", data=body, timeout=PATIENCE)
        expect("POST", (answer.status_code, answer.text), (200, hashlib.sha256(body).hexdigest()))
        once(name)
        if number % 10 == 2:
            late = at_most_once(name + "late")
            answer = outcome(lambda: session.post(f"{url}/slow/{late}", data=b"x", timeout=0.1))
            expect("POST in 0.1 s", answer, requests.exceptions.ReadTimeout)
        if number % 10 == 3:
            answer = session.get(f"{url}/long/2000000", timeout=PATIENCE, stream=True)
            expect("start of a long answer", next(answer.iter_content(1000)), b"x" * 1000)
            answer.close()

    work(get, get, post, post)


def curl():
    url = address if "://" in address else f"http://{address}"
    start = ["curl", "-sS", "--max-time"]

    def get(number):
        urls = [f"{url}/item/{i}" for i in range(20)]
        done = timed(lambda: subprocess.run([*start, str(PATIENCE), *urls], capture_output=True, text=True))
        expect("20 GET", (done.returncode, done.stdout, done.stderr), (0, "".join(f"item {i}" for i in range(20)), ""))

    def post(number):
        name = f"{prefix}:{number}"
        body = name.encode() * (LONG * 2 // len(name) if number % 5 == 2 else 1)
        done = subprocess.run([*start, str(PATIENCE), "--data-binary", "@-", f"{url}/once/{name}"],
                              input=body, capture_output=True)
        expect("POST", (done.returncode, done.stdout.decode(), done.stderr), (0, hashlib.sha256(body).hexdigest(), b""))
        once(name)
        if number % 5 == 3:
            late = at_most_once(name + "late")
            done = subprocess.run([*start, "0.1", "-d", "x", f"{url}/slow/{late}"], capture_output=True)
            expect("POST in 0.1 s: exit code", done.returncode, 28)
        if number % 5 == 4:
            cancelled = at_most_once(name + "cancelled")
            process = subprocess.Popen([*start, str(PATIENCE), "-d", "x", f"{url}/slow/{cancelled}"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.05)
            process.kill()
            process.wait()

    work(get, post)


def wrk():
    """GET first, then POST. The requests that are under way at the end are cancelled."""
    script = f"""
        local number = 0
        request = function()
            number = number + 1
            return wrk.format("POST", "/once/{prefix}:" .. number, nil, string.rep("x", number % 50 == 0 and {LONG} or 100))
        end"""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        for what, path in [("GET", ["/item/1"]), ("POST", ["/", "-s", file.name])]:
            command = ["wrk", "-t1", "-c8", f"-d{max(1, int(seconds / 2))}s", f"--timeout={PATIENCE}s", "--latency"]
            done = subprocess.run([*command, f"http://{address}{path[0]}", *path[1:]], capture_output=True, text=True)
            said = done.stdout + done.stderr
            expect(f"{what}: exit code", done.returncode, 0)
            errors = re.findall(r"(Socket errors:.*|Non-2xx.*)", said)
            expect(what, errors, [])
            report["requests"] += int(re.search(r"(\d+) requests in", said)[1])
            number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
            if what == "GET":
                report["milliseconds"].append(float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit])


{"redis-py": redis_py, "requests": requests, "curl": curl, "wrk": wrk}[library]()
print(json.dumps(report))
