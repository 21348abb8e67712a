"""Sends messages, so many at a time: websocket_client.py PORT MESSAGES AT_A_TIME."""
import asyncio
import sys

import websockets


async def ask(port, messages, at_a_time):
    async with websockets.connect(f"ws://127.0.0.1:{port}") as socket:
        for _ in range(messages // at_a_time):
            for _ in range(at_a_time):
                await socket.send("ask")
            for _ in range(at_a_time):
                await socket.recv()


asyncio.run(ask(*map(int, sys.argv[1:])))
