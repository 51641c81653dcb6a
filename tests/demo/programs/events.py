"""An event loop with a server, two clients and timers: events.py STEPS SECONDS."""

import asyncio
import sys

Answers = asyncio.Queue[int]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    total = 0
    while line := await reader.readline():
        total += int(line)
        writer.write(b"%d\n" % total)
        await writer.drain()
    writer.close()


async def ask(port: int, steps: int, seconds: float, answers: Answers) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for step in range(steps):
        writer.write(b"%d\n" % step)
        await answers.put(int(await reader.readline()))
        await asyncio.sleep(seconds)
    writer.close()


async def show(steps: int, left: Answers, right: Answers) -> None:
    for step in range(steps):
        print(f"step {step}: left {await left.get()} right {await right.get()}", flush=True)


async def main(steps: int, seconds: float) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    left, right = Answers(), Answers()
    await asyncio.gather(
        ask(port, steps, seconds, left),
        ask(port, steps, seconds, right),
        show(steps, left, right),
    )
    server.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
