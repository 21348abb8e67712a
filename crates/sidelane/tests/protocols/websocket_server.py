"""Answers each message with itself: websocket_server.py PORT."""
import asyncio
import sys

import websockets


async def echo(socket, *_):
    async for message in socket:
        await socket.send(message)


async def serve():
    async with websockets.serve(echo, "127.0.0.1", int(sys.argv[1])):
        await asyncio.Future()


asyncio.run(serve())
