"""Asks over TLS, ON_EACH times on each connection: https_client.py PORT REQUESTS ON_EACH."""
import http.client
import ssl
import sys

port, requests, on_each = map(int, sys.argv[1:])
for _ in range(requests // on_each):
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context())
    for _ in range(on_each):
        connection.request("GET", "/")
        connection.getresponse().read()
    connection.close()
