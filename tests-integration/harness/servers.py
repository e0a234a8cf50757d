"""Start real servers out of wheels: alone, with TLS, behind an ACL user, on a unix socket."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from harness.kinds import ServerKind, default_kind, installed_kinds
from harness.ports import HOST, free_port
from harness.processes import Process
from harness.wire import ReplyError, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from harness.proxy import Proxy

__all__ = [
    "ACL_PASSWORD",
    "ACL_USER",
    "Server",
    "ServerKind",
    "default_kind",
    "installed_kinds",
    "start",
]

ACL_USER, ACL_PASSWORD = "limited", "secret"
_START_SECONDS = 10.0
_PORT_ATTEMPTS = 10


class ServerDidNotStart(RuntimeError):
    """A server ended at once or does not answer; the message carries what it logged."""


class Server:
    """A server process of our own; make one with `start`.

    Attributes:
        kind: Which server it is.
        port: Its TCP port, the same after a restart.
        url: Where clients connect, through TLS, as the ACL user or over the unix socket if asked.
        admin_url: The same server over plain TCP, as the default user, who may do anything.
        args: The further arguments it was started with.
    """

    host = HOST

    def __init__(
        self,
        kind: ServerKind,
        *,
        port: int,
        args: Sequence[str] = (),
        unixsocket: bool = False,
        tls: bool = False,
        acl: str | None = None,
        sentinel_config: str | None = None,
    ) -> None:
        self.kind = kind
        self.port = port
        self.args = tuple(args)
        self._acl = acl
        self._sentinel_config = sentinel_config
        self._owner = os.getpid()
        self._process: Process | None = None
        self._tls_front: Proxy | None = None
        # Unix sockets have short paths, so not below a test's own temporary folder.
        self.folder = Path(tempfile.mkdtemp(prefix="fk-", dir="/tmp"))
        self.unix_path = str(self.folder / "s")
        user = f"{ACL_USER}:{ACL_PASSWORD}@" if acl is not None else ""
        self.admin_url = f"redis://{HOST}:{port}/0"
        self.url = f"redis://{user}{HOST}:{port}/0"
        if unixsocket:
            self.url = f"unix://{user}{self.unix_path}?db=0"
        if tls:
            self.url = self._start_tls_front(user)

    @property
    def pid(self) -> int:
        """The id of the running process."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the process runs, be it paused."""
        return self._process is not None and self._process.alive

    def call(self, *words: str | bytes | float, timeout: float = 5.0) -> Any:
        """Return the reply to a command sent as the default user over a connection of its own.

        Raises:
            ReplyError: The server answered with an error.
            OSError: The server is down or did not answer within `timeout` seconds.
        """
        with Wire(self.unix_path, timeout=timeout) as wire:
            return wire.call(*words)

    def info(self, section: str = "everything") -> dict[str, str]:
        """Return the fields of INFO."""
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def log(self) -> str:
        """Return what the server has logged since it was first started."""
        with contextlib.suppress(FileNotFoundError):
            return (self.folder / "log").read_text(errors="replace")
        return ""

    def clean(self) -> None:
        """Make it as good as new: no data, no scripts, no statistics, nobody paused, nobody there.

        Its user has the rules again that it was given. A client that an earlier test forgot must
        not be counted by this one.
        """
        with Wire(self.unix_path) as wire:
            for words in (
                ("CLIENT", "UNPAUSE"),
                ("FLUSHALL",),
                ("SCRIPT", "FLUSH"),
                ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
                ("CLIENT", "KILL", "TYPE", "pubsub"),
                ("CONFIG", "RESETSTAT"),
            ):
                wire.call(*words)

        self._allow()

    def _allow(self) -> None:
        """Let the user do what it was started with, whatever an earlier test made of that."""
        if self._acl is not None:
            # Redis 6.2 gives a new user every channel, and refuses a pattern beside that.
            rules = ["on", f">{ACL_PASSWORD}", *self._acl.split()]
            self.call("ACL", "SETUSER", ACL_USER, "reset", "resetchannels", *rules)

    def launch(self) -> None:
        """Start the process and return when it answers.

        Raises:
            ServerDidNotStart: It ended at once, or did not answer within ten seconds.
        """
        with (self.folder / "log").open("ab") as log:
            self._process = Process(self._command(), folder=self.folder, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if not self.alive or time.monotonic() > deadline:
                self.kill()
                raise ServerDidNotStart(f"{self.kind} on port {self.port}:\n{self.log()[-3000:]}")
            time.sleep(0.002)
        self._allow()

    def pause(self) -> None:
        """Stop the process with SIGSTOP: connections stay open and nothing is answered."""
        self._running().pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._running().resume()

    def kill(self) -> None:
        """End the process with SIGKILL; its folder stays, so that it can be restarted."""
        if self._process is not None:
            self._process.kill()

    def restart(self, *, keep_data: bool) -> None:
        """Kill the process and start it again on its port, with its data or empty.

        A running server is made to save first when the data is to be kept. One that was killed
        comes back with what it had on disk.
        """
        if keep_data and self.alive:
            self.call("SAVE")
        self.kill()
        if not keep_data:
            for path in self.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != "log":
                    path.unlink()
        self.launch()

    def stop(self) -> None:
        """End the process and remove its folder; does nothing in a fork of the test process."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        if self._tls_front is not None:
            self._tls_front.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.url}>"

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("the server was not launched")
        return self._process

    def _start_tls_front(self, user: str) -> str:
        # No wheel brings a server with TLS built in, so it ends in a proxy in front of the server.
        from harness.proxy import Proxy  # noqa: PLC0415 - needs cryptography only here
        from harness.tls import authority  # noqa: PLC0415

        self._tls_front = Proxy(HOST, self.port, tls=authority().server_context())
        bundle = quote(str(authority().bundle), safe="")
        return f"rediss://{user}localhost:{self._tls_front.port}/0?ssl_ca_certs={bundle}"

    def _command(self) -> list[str]:
        binary = str(self.kind.find())
        common = ["--port", str(self.port), "--bind", HOST, "--daemonize", "no"]
        common += ["--dir", str(self.folder)]
        if self._sentinel_config is not None:
            config = self.folder / "sentinel.conf"
            if not config.exists():
                config.write_text(self._sentinel_config)
            return [binary, str(config), "--sentinel", *common, "--unixsocket", self.unix_path]
        plain = ["--save", "", "--appendonly", "no"]
        return [binary, *common, *plain, *self.args, "--unixsocket", self.unix_path]

    def _answers(self) -> bool:
        # On the socket in our own folder, for a stranger may have taken the TCP port. The server
        # opens TCP first, so whoever answers here listens there.
        try:
            return bool(self.call("PING") == b"PONG")
        except ReplyError as error:
            return str(error).startswith("NOAUTH")
        except OSError:
            return False


def start(
    kind: ServerKind | None = None,
    *,
    args: Sequence[str] = (),
    port: int | None = None,
    unixsocket: bool = False,
    tls: bool = False,
    acl: str | None = None,
    sentinel_config: str | None = None,
) -> Server:
    """Start a server that lives until `stop`, the end of its `with` block, or our own death.

    Args:
        kind: Which server; the default kind if omitted.
        args: Further arguments, such as `("--maxmemory", "2mb")`.
        port: The TCP port; a free one if omitted.
        unixsocket: Whether `.url` names the unix socket.
        tls: Whether `.url` is a `rediss://` one, with the certificate authority in its query.
        acl: The rules of one user, as for ACL SETUSER; `.url` then connects as that user.
        sentinel_config: Run as a Sentinel with this configuration.

    Raises:
        LookupError: No such server is installed.
        ServerDidNotStart: It ended at once, or did not answer within ten seconds.
    """
    kind = kind or default_kind()
    if kind.find() is None:
        raise LookupError(kind.missing)
    with_bus = "--cluster-enabled" in args
    for attempts_left in reversed(range(1 if port is not None else _PORT_ATTEMPTS)):
        server = Server(
            kind,
            port=free_port(with_bus=with_bus) if port is None else port,
            args=args,
            unixsocket=unixsocket,
            tls=tls,
            acl=acl,
            sentinel_config=sentinel_config,
        )
        atexit.register(server.stop)
        try:
            server.launch()
        except ServerDidNotStart as error:
            server.stop()
            # Somebody took the free port before the server did.
            if "in use" not in str(error) or not attempts_left:
                raise
        except BaseException:
            server.stop()
            raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")
