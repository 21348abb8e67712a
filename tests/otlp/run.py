"""Slow requests as traces in a real OpenTelemetry collector.

    run.py SIDELANE COLLECTOR

The collector takes traces by OTLP over HTTP, and its exporter writes what it understood to a file. Each check prints a
line; the last line has the counts. Needs root, as `sidelane trace` does.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict

LIMIT_SECONDS = 30
SLO = "100ms"
SLOW, QUICK = 5, 20

here = os.path.dirname(os.path.abspath(__file__))
sidelane, collector = sys.argv[1:]
scratch = tempfile.mkdtemp(prefix="sidelane-otlp-")
received = f"{scratch}/received.jsonl"
children = []


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(command, port=None):
    """Starts a program, and waits until it listens."""
    log = open(f"{scratch}/{len(children)}.log", "w+")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    process.log = log.name
    children.append(process)
    if port:
        wait_for(f"{command[0]} listens", lambda: is_listening(port) or process.poll() is not None)
        assert process.poll() is None, f"cannot start {command}: {text_of(log.name)}"
    return process


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def text_of(path):
    with open(path) as file:
        return file.read()


def wait_for(what, holds):
    end = time.monotonic() + LIMIT_SECONDS
    while not (found := holds()):
        if time.monotonic() > end:
            logs = "\n".join(f"{' '.join(child.args)}:\n{text_of(child.log)}" for child in children)
            raise AssertionError(f"{what} did not happen\n{logs}")
        time.sleep(0.05)
    return found


def finish(process):
    process.send_signal(signal.SIGINT)
    process.wait(LIMIT_SECONDS)
    return text_of(process.log)


def start_collector(port):
    config = f"{scratch}/collector.yaml"
    with open(config, "w") as file:
        file.write(f"""
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{file: {{path: "{received}", flush_interval: 100ms}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [file]}}}}
""")
    return start([collector, "--config", config], port)


def get(port, path, **fields):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", headers=fields)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def send_requests(port):
    for number in range(SLOW + QUICK):
        get(port, f"{'slow' if number % 5 == 0 else 'quick'}/{number}")


def read_traces(text):
    """Spans by trace, from whole lines of OTLP's JSON. Each has the attributes of its resource, too."""
    traces = defaultdict(list)
    for line in text.split("\n")[:-1]:
        for part in json.loads(line)["resourceSpans"]:
            resource = attributes_of(part["resource"])
            for span in (span for scope in part["scopeSpans"] for span in scope["spans"]):
                traces[span["traceId"]].append({**span, "resource": resource, "attributes": attributes_of(span)})
    return dict(traces)


def attributes_of(carrier):
    return {one["key"]: next(iter(one["value"].values())) for one in carrier.get("attributes", [])}


def length_ns(span):
    return int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])


def check_trace(spans):
    """Returns the root. The other spans must lie end to end below it, and sum to its length."""
    ids = {span["spanId"] for span in spans}
    (root,) = [span for span in spans if span.get("parentSpanId", "") not in ids]
    others = sorted((span for span in spans if span is not root), key=lambda span: int(span["startTimeUnixNano"]))
    assert len(ids) == len(spans) and others, spans
    assert root["kind"] == 2 and all(span["parentSpanId"] == root["spanId"] for span in others), spans
    ends = [root["startTimeUnixNano"], *(span["endTimeUnixNano"] for span in others)]
    assert [span["startTimeUnixNano"] for span in others] + [root["endTimeUnixNano"]] == ends, spans
    assert sum(map(length_ns, others)) == length_ns(root), spans
    return root


def new_traces(count, before=()):
    """Waits until the collector has written this number of traces that are not among those before."""

    def found():
        traces = read_traces(text_of(received)) if os.path.exists(received) else {}
        traces = {key: spans for key, spans in traces.items() if key not in before}
        return traces if len(traces) >= count else None

    return wait_for(f"{count} traces arrive", found)


def start_trace(port, *options):
    command = [sidelane, "trace", "--service", f"port:{port}", "--slo", SLO, "--for", "100s", *options]
    process = start(command)
    wait_for("the trace begins", lambda: "the requests of" in text_of(process.log))
    return process


def each_slow_request_is_one_trace():
    json_file, log = f"{scratch}/trace.json", f"{scratch}/trace.log"
    trace = start_trace(service, "--otlp", url, "--json", json_file, "--log", log)
    send_requests(service)
    said = finish(trace)
    assert f"exported {SLOW} of {SLOW} slow requests to {url}/v1/traces" in " ".join(said.split()), said
    traces = new_traces(SLOW)
    assert len(traces) == SLOW, f"{len(traces)} traces"
    roots = [check_trace(spans) for spans in traces.values()]
    slow = [request for request in json.load(open(json_file))["trace"]["requests"] if request["latency_us"] > 1e5]
    wanted = sorted(round(request["latency_us"] * 1e3) for request in slow)
    assert sorted(map(length_ns, roots)) == wanted, (wanted, roots)
    for root in roots:
        assert abs(int(root["endTimeUnixNano"]) / 1e9 - time.time()) < 60, "the time of day"
        assert root["resource"]["service.name"].startswith("python"), root["resource"]
        assert root["attributes"]["server.port"] == str(service), root
        assert root["attributes"]["sidelane.cause"] == "timer" and root["attributes"]["sidelane.advice"], root
    # The log gives the same traces, with the same ids, in a file that the collector's reader takes.
    again = f"{scratch}/again.jsonl"
    subprocess.run([sidelane, "report", log, "--otlp", again, "--quiet"], check=True, capture_output=True)
    read = subprocess.run([collector, "read", again], check=True, capture_output=True, text=True).stdout
    spans = sum(map(len, traces.values()))
    assert read_traces(read) == traces, "the file has other traces"
    return f"{SLOW} traces with {spans} spans; latencies {min(wanted) / 1e6:.1f} to {max(wanted) / 1e6:.1f} ms"


def traceparent_of_a_client_is_the_parent():
    before = set(new_traces(SLOW))
    port = free_port()
    command = [sidelane, "proxy", "--listen", f"127.0.0.1:{port}", "--active", f"127.0.0.1:{service}"]
    command += ["--hazard", "none", "--trace", "--slo", SLO, "--otlp", url]
    proxy = start(command, port)
    wait_for("the proxy traces", lambda: "tracing the requests" in text_of(proxy.log))
    parents = {}
    for number in range(1, SLOW + 1):
        trace_id, span_id = f"{0xABC0 + number:032x}", f"{0xDEF0 + number:016x}"
        field = f"00-{trace_id}-{span_id}-01"
        parents[trace_id] = span_id
        assert get(port, "slow/with?secret=1", traceparent=field) == field, "it is forwarded unchanged"
        get(port, "quick/with", traceparent=f"00-{number:032x}-{span_id}-01")
    assert get(port, "slow/without") == "None", "no field is added"
    assert get(port, "slow/invalid", traceparent="00-junk") == "00-junk"
    traces = new_traces(SLOW + 2, before)
    said = finish(proxy)
    assert len(traces) == SLOW + 2, f"{len(traces)} traces"
    for trace_id, spans in traces.items():
        root = check_trace(spans)
        assert root.get("parentSpanId", "") == parents.get(trace_id, ""), root
        assert root["name"] == "GET" and root["attributes"]["http.response.status_code"] == "200", root
        assert root["attributes"]["url.path"].startswith("/slow/") and "secret" not in json.dumps(spans), root
        assert root["attributes"]["sidelane.cause"] == "timer", spans
        assert {span["resource"]["service.name"] for span in spans} >= {"sidelane-proxy"}, spans
    assert set(parents) <= set(traces), traces.keys()
    assert re.search(rf"slow +{SLOW + 2} requests exported", said), said
    return f"{SLOW} traces continue the client's, 2 are their own"


def flight_recorder_exports_too():
    before = set(new_traces(SLOW))
    recorder = start([sidelane, "trace", "--service", f"port:{service}", "--slo", SLO, "--record", scratch, "--otlp", url])
    wait_for("the recorder records", lambda: "the requests of" in text_of(recorder.log))
    get(service, "slow/recorded")
    traces = new_traces(1, before)
    said = finish(recorder)
    assert "exported 1 of 1 slow requests" in " ".join(said.split()), said
    (root,) = map(check_trace, traces.values())
    return f"1 trace of {length_ns(root) / 1e6:.1f} ms"


def lost_collector_delays_no_request():
    port, closed = free_port(), free_port()
    command = [sidelane, "proxy", "--listen", f"127.0.0.1:{port}", "--active", f"127.0.0.1:{service}", "--hazard", "none"]
    command += ["--trace", "--slo", SLO, "--otlp", f"http://127.0.0.1:{closed}", "--json", f"{scratch}/proxy.json"]
    proxy = start(command, port)
    wait_for("the proxy traces", lambda: "tracing the requests" in text_of(proxy.log))
    for _ in range(3):
        get(port, "slow/lost")
    wait_for("the failure is said", lambda: "cannot send" in text_of(proxy.log))
    said = " ".join(finish(proxy).split())
    counted = json.load(open(f"{scratch}/proxy.json"))
    assert counted["slow_requests"] == {"exported": 0, "not_exported": 3}, counted
    assert counted["counts"]["answered"] == 3 and "Connection refused" in said, said
    trace = start_trace(service, "--otlp", f"http://127.0.0.1:{closed}")
    get(service, "slow/lost")
    said = " ".join(finish(trace).split())
    assert trace.returncode == 125 and "took longer than 100 ms" in said, said
    assert "cannot send 1 of 1 traces" in said and "check that a collector takes OTLP" in said, said
    return "3 requests counted as not exported"


service, otlp = free_port(), free_port()
url = f"http://127.0.0.1:{otlp}"
passed = failed = 0
try:
    start([sys.executable, f"{here}/service.py", str(service)], service)
    start_collector(otlp)
    for check in (
        each_slow_request_is_one_trace,
        traceparent_of_a_client_is_the_parent,
        flight_recorder_exports_too,
        lost_collector_delays_no_request,
    ):
        name = check.__name__.replace("_", " ")
        try:
            print(f"ok      {name}: {check()}", flush=True)
            passed += 1
        except Exception as error:  # Each check says what failed, and the others still run.
            print(f"FAILED  {name}: {error!r:.2000}", flush=True)
            failed += 1
finally:
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()
    shutil.rmtree(scratch)
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
