"""Stand between clients and a server, count what passes, and make faults happen.

One thread with an event loop of its own serves any number of connections, so a client under test
may block its own thread or loop as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from harness.faults import Command, Fault, Route, now
from harness.ports import HOST, free_port
from harness.wire import Incomplete, Push, parse

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine

    from typing_extensions import Self

    from harness.servers import Server

__all__ = ["Connection", "Proxy"]

_F = TypeVar("_F", bound=Fault)
_T = TypeVar("_T")

_CHUNK = 65536
_LOGIN = {"AUTH", "HELLO", "SELECT"}
_SUBSCRIBE = {"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"}
_SUBSCRIPTIONS = _SUBSCRIBE | {"UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"}


@dataclass
class Connection:
    """A client's connection through the proxy.

    Attributes:
        number: Counts from 1 in the order of arrival.
        commands: What it sent, oldest first.
        counts: How often it sent each command, by upper-case name.
        open: Whether it is open.
        subscriber: Whether it has subscribed to channels.
    """

    number: int
    commands: list[Command] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    open: bool = True
    subscriber: bool = False


class Proxy:
    """A TCP proxy in front of a server.

    Attributes:
        port: Where it listens.
        connections: All connections it has had, also the closed ones, oldest first.
    """

    host = HOST

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        raw: bool = False,
        userinfo: str = "",
    ) -> None:
        """Listen on a free port and forward to that address.

        Args:
            host: The server's host.
            port: The server's port.
            tls: Speak TLS with clients, in this context.
            raw: Forward bytes as they come, for what is not RESP, such as a replica's link.
            userinfo: `user:password@` in front of the host in `url`.
        """
        self.server = (host, port)
        self.connections: list[Connection] = []
        self._tls = tls
        self._raw = raw
        self._userinfo = userinfo
        self._faults: list[Fault] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="harness proxy", daemon=True)
        self._thread.start()
        self.port = self._do(self._listen_on_a_free_port())

    @classmethod
    def before(cls, server: Server) -> Proxy:
        """Stand before a server of the harness, with its ACL user in `url` if it has one."""
        userinfo = urlsplit(server.url).netloc.rpartition("@")[0]
        return cls(server.host, server.port, userinfo=userinfo and userinfo + "@")

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://{self._userinfo}{HOST}:{self.port}/0"

    @property
    def counts(self) -> Counter[str]:
        """How often each command came, by upper-case name, over all connections."""
        return sum((connection.counts for connection in self.connections), Counter())

    @property
    def commands(self) -> list[Command]:
        """All commands in the order of their arrival."""
        everything = (c for connection in self.connections for c in connection.commands)
        return sorted(everything, key=lambda command: command.at)

    @property
    def open_connections(self) -> list[Connection]:
        """The connections that are open now."""
        return [connection for connection in self.connections if connection.open]

    def add(self, fault: _F) -> _F:
        """Let the fault strike from now on, and return it."""
        self._faults = [*self._faults, fault]
        return fault

    def remove(self, fault: Fault) -> None:
        """Let the fault strike no more."""
        self._faults = [other for other in self._faults if other is not fault]

    def clear(self) -> None:
        """Let no fault strike any more, and forget what was counted on closed connections."""
        self._faults = []
        self.connections = self.open_connections
        for connection in self.connections:
            connection.counts.clear()
            connection.commands.clear()

    def cut(self, refuse_for: float = 0.0) -> None:
        """Close all connections now and refuse new ones for so many seconds."""
        self._call(lambda: self.cut_in_loop(refuse_for))

    def freeze(self) -> None:
        """Hold back all bytes in both directions, as a network that has come apart does."""
        self._call(self._flowing.clear)

    def thaw(self) -> None:
        """Let the bytes go on after `freeze`."""
        self._call(self._flowing.set)

    def close(self) -> None:
        """Close all connections and stop listening."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def plan(self, route: Route) -> None:
        """Ask every fault what is to become of a command."""
        for fault in self._faults:
            fault.plan(route)

    def cut_in_loop(self, refuse_for: float) -> None:
        """Do what `cut` does, from inside the proxy's loop."""
        if refuse_for > 0 and self._listener is not None:
            self._listener.close()
            self._listener = None
            self._loop.call_later(refuse_for, lambda: self._spawn(self._listen(self.port)))
        for link in list(self._links):
            link.abort()

    async def flow(self) -> None:
        """Return when bytes may pass."""
        await self._flowing.wait()

    # What follows runs in the proxy's thread, or reaches into it.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._flowing.set()
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def _call(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._do(call())

    async def _listen_on_a_free_port(self) -> int:
        while True:
            port = free_port()
            with contextlib.suppress(OSError):
                await self._listen(port)
                return port

    async def _listen(self, port: int) -> None:
        self._listener = await asyncio.start_server(
            self._accept, HOST, port, ssl=self._tls, reuse_address=True
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._flowing.set()
        self.cut_in_loop(0)
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(len(self.connections) + 1)
        self.connections.append(connection)
        ends, link = [writer], None
        try:
            # The server may be down, or the client gone by now.
            with contextlib.suppress(OSError):
                upstream = await asyncio.open_connection(*self.server)
                ends.append(upstream[1])
                link = _Link(self, connection, (reader, writer), upstream)
                self._links.add(link)
                await (link.relay() if self._raw else link.run())
        finally:
            connection.open = False
            if link is not None:
                self._links.discard(link)
            for end in ends:
                end.transport.abort()


_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One client's connection and the connection to the server behind it."""

    def __init__(self, proxy: Proxy, connection: Connection, client: _Ends, server: _Ends) -> None:
        self._proxy = proxy
        self._connection = connection
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        # Small commands must not wait for the acknowledgement of earlier ones.
        for writer in (self._to_client, self._to_server):
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._prelude: tuple[bytes, ...] = ()
        self._resp3 = False
        self._waiting: deque[Route] = deque()
        # Replies on their way: when to hand over, and the bytes, or None to close.
        self._replies: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()

    def abort(self) -> None:
        for writer in (self._to_client, self._to_server):
            writer.transport.abort()

    async def run(self) -> None:
        """Pass commands and replies until either side closes."""
        await self._until_one_ends(self._pass_commands(), self._pass_replies(), self._hand_over())

    async def relay(self) -> None:
        """Pass bytes until either side closes."""
        await self._until_one_ends(
            self._copy(self._from_client, self._to_server),
            self._copy(self._from_server, self._to_client),
        )

    async def _until_one_ends(self, *work: Coroutine[Any, Any, None]) -> None:
        tasks = [asyncio.ensure_future(part) for part in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._proxy.flow()
                writer.write(data)
                await writer.drain()

    async def _pass_commands(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await self._from_client.read(_CHUNK):
                buffer += data
                position = 0
                with contextlib.suppress(Incomplete):
                    while position < len(buffer):
                        words, end = parse(buffer, position)
                        raw = bytes(buffer[position:end])
                        position = end
                        if not await self._pass_command(tuple(words), raw):
                            return
                del buffer[:position]
                await self._to_server.drain()

    async def _pass_command(self, words: tuple[bytes, ...], raw: bytes) -> bool:
        """Forward a command as the faults will have it; tell whether to go on."""
        command = Command(words, raw, self._connection.number, now())
        self._connection.commands.append(command)
        self._connection.counts[command.name] += 1
        route = Route(command, self._prelude, self._proxy.server)
        self._proxy.plan(route)
        if command.name in _LOGIN:
            self._prelude += (raw,)
            self._resp3 = self._resp3 or (command.name == "HELLO" and words[1:2] == (b"3",))
        if route.cut is not None:
            self._proxy.cut_in_loop(route.cut)
        if not route.forward:
            if route.then == "silence":
                while await self._from_client.read(_CHUNK):
                    pass  # what comes behind a lost packet is lost with it
            return False
        await self._proxy.flow()
        if command.name in _SUBSCRIPTIONS:
            self._connection.subscriber |= command.name in _SUBSCRIBE
        elif not self._connection.subscriber or self._resp3:
            self._waiting.append(route)
        self._to_server.write(raw * route.copies)
        return True

    async def _pass_replies(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await self._from_server.read(_CHUNK):
                buffer += data
                position = 0
                with contextlib.suppress(Incomplete):
                    while position < len(buffer):
                        reply, end = parse(buffer, position)
                        self._pass_reply(reply, bytes(buffer[position:end]))
                        position = end
                del buffer[:position]
        # The server closed: what it said before still arrives.
        self._replies.put_nowait((now(), None))
        await asyncio.Event().wait()

    def _pass_reply(self, reply: Any, raw: bytes) -> None:
        if isinstance(reply, Push) or not self._waiting:
            self._replies.put_nowait((now(), raw))
            return
        route = self._waiting[0]
        route.replies += 1
        if route.replies == route.answer:
            self._replies.put_nowait((now() + route.delay, None if route.lose_reply else raw))
        if route.replies == route.copies:
            self._waiting.popleft()

    async def _hand_over(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, raw = await self._replies.get()
                await asyncio.sleep(max(0.0, due - now()))
                await self._proxy.flow()
                if raw is None:
                    return
                self._to_client.write(raw)
                await self._to_client.drain()
