"""An HTTP server that counts how often it carried out each POST, by the name in its path.

    origin.py PORT

- GET /item/N answers `item N`; GET /long/N answers N bytes in chunks.
- POST /once/NAME answers the SHA-256 of the body; POST /slow/NAME does so after 300 ms.
- GET /slow/NAME answers after 300 ms; GET /counts/PREFIX answers the counts as JSON.
"""

import hashlib
import json
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOW_SECONDS = 0.3
CHUNK = 8192

counts = Counter()
lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_expect_100(self):
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def do_GET(self):
        _, kind, name = self.path.split("/", 2)
        if kind == "long":
            return self.answer_in_chunks(int(name))
        if kind == "slow":
            time.sleep(SLOW_SECONDS)
        if kind == "counts":
            with lock:
                found = {key: count for key, count in counts.items() if key.startswith(name)}
            return self.answer(json.dumps(found).encode())
        return self.answer(f"{kind} {name}".encode())

    def do_POST(self):
        _, kind, name = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if len(body) < int(self.headers["Content-Length"]):
            self.close_connection = True
            return
        with lock:
            counts[name] += 1
        if kind == "slow":
            time.sleep(SLOW_SECONDS)
        self.answer(hashlib.sha256(body).hexdigest().encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer_in_chunks(self, length):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while length > 0:
            count = min(length, CHUNK)
            self.wfile.write(b"%x\r\n%s\r\n" % (count, b"x" * count))
            self.wfile.flush()
            length -= count
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Says nothing: clients that go away are a part of the test."""


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
