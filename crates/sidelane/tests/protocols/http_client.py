"""Posts on one connection, and waits to be told to go on before each body: http_client.py PORT REQUESTS."""
import socket
import sys

port, requests = map(int, sys.argv[1:])
connection = socket.create_connection(("127.0.0.1", port), timeout=60)
answers = connection.makefile("rb")


def read_answer():
    length = 0
    while (line := answers.readline().strip().lower()) != b"":
        length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
    answers.read(length)


for _ in range(requests):
    connection.sendall(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    read_answer()
    connection.sendall(b"body")
    read_answer()
