"""Answers each call of any method with what it was asked: grpc_server.py PORT."""
import concurrent.futures
import sys

import grpc


class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
