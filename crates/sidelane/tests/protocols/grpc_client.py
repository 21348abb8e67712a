"""Calls, so many at a time: grpc_client.py PORT CALLS AT_A_TIME."""
import sys

import grpc

port, calls, at_a_time = map(int, sys.argv[1:])
call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/test/Echo")
for _ in range(calls // at_a_time):
    for answer in [call.future(b"ask") for _ in range(at_a_time)]:
        answer.result()
