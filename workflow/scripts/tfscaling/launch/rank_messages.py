"""The launcher's server for messages of an attempt's ranks: events, heartbeats, reports.

Ranks send them over the network (`link`), and the launcher writes one file of all events and one of
all reports. Ranks without a connection write a file of events each, heartbeats included, which the
launcher reads every `FILES_INTERVAL_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import resource
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tfscaling.files import strict_json
from tfscaling.launch import link, rank_files
from tfscaling.launch.heartbeat import FILES_INTERVAL_S, INTERVAL_S, Heartbeat
from tfscaling.record import clock, events
from tfscaling.record.events import Event, EventName

#: Size of the longest accepted message.
_MESSAGE_BYTES_MAX = 1 << 28
#: Limits for connections that have not proved the secret: their number, beyond which the oldest is
#: closed, and the seconds after which each is closed.
_STRANGERS_MAX, _STRANGER_S = 256, 30.0
#: Seconds within which connections of ended ranks are closed.
_SETTLED_S = 2.0
#: Pause between two looks at files that are still missing.
_POLL_S = 0.3
#: Pause after a connection could not be accepted.
_RETRY_S = 0.05
#: Seconds that a shared file system may take to show a file; latency-wait in profiles/slurm is the
#: same.
LATENCY_WAIT_S = 60.0


class IncompleteError(RuntimeError):
    """Reports or events of ranks that ended successfully are missing or truncated.

    Attributes:
        ranks: Numbers of these ranks.
    """

    def __init__(self, message: str, ranks: list[int]) -> None:
        super().__init__(message)
        self.ranks = ranks


class RankMessageServer:
    """Receives events, heartbeats and reports of all ranks, and writes events and reports to files.

    The launcher calls `update` about once a second.

    Args:
        folder: The attempt's folder.

    Attributes:
        events: Rank → its events so far, without heartbeats.
        beats: Rank → its last heartbeat.
        reported: Ranks whose report has come.
        progress: Number of events of all ranks so far, without heartbeats.
        refused: Number of refused connections.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: dict[int, list[Event]] = {}
        self.beats: dict[int, Heartbeat] = {}
        self.reported: set[int] = set()
        self.progress = self.refused = 0
        self._secret = secrets.token_hex(32)
        self._unsaved = {events.RANKS_EVENTS: bytearray(), rank_files.REPORTS: bytearray()}
        self._lock = threading.Lock()
        self._read_to: dict[Path, int] = {}
        self._read_s = float("-inf")
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._faults: set[int | None] = set()
        self._ranks: set[asyncio.StreamWriter] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    @contextlib.contextmanager
    def serve(self, host: str, ranks: int) -> Iterator[str]:
        """Listen for connections of ranks within the `with` block.

        A loopback address serves this machine only. Otherwise all addresses are served, because the
        name of a host may resolve to a different address on the host itself (127.0.1.1, a second
        network).

        Args:
            host: The host name or address for ranks.
            ranks: Number of ranks.

        Yields:
            `HOST:PORT SECRET`, the value of the ranks' variable `link.VARIABLE`.
        """
        _raise_file_limit(2 * _STRANGERS_MAX + 3 * ranks)
        serves = threading.Event()
        with _bind_socket(host) as listener:
            port = listener.getsockname()[1]
            work = self._serve(listener, serves)
            thread = threading.Thread(target=asyncio.run, args=(work,), daemon=True)
            thread.start()
            serves.wait()
            try:
                yield f"{host}:{port} {self._secret}"
            finally:
                assert self._loop is not None
                self._loop.call_soon_threadsafe(self._ended.set)
                thread.join()

    def update(self, *, files: bool = False) -> None:
        """Write received events and reports to files; read files of ranks without a connection.

        Args:
            files: Whether to read the files in any case; otherwise they are read every
                `FILES_INTERVAL_S` seconds.

        Raises:
            OSError: The file system does not answer. Nothing is lost: a later call writes
                everything.
        """
        for name, unsaved in self._unsaved.items():
            if unsaved:
                self._append_to_file(self.folder / name, unsaved)
        if files or time.monotonic() - self._read_s >= FILES_INTERVAL_S:
            self._read_s = time.monotonic()
            for path in self.folder.glob("rank-*.events.jsonl"):
                rank = events.rank_of_file(path)
                if path not in self._read_to:  # it has all events of the rank
                    self.events.pop(rank, None)
                found, self._read_to[path] = events.read_new_events(
                    path, self._read_to.get(path, 0)
                )
                for event in found:
                    self._store_event(rank, event, 2 * FILES_INTERVAL_S)

    def receive_rest(self) -> None:
        """Receive the last messages, and read the last files, of ranks that have ended.

        The ranks' connections are given `_SETTLED_S` seconds to close. Then the files are read.
        """
        until_s = time.monotonic() + _SETTLED_S
        while self._ranks and time.monotonic() < until_s:
            time.sleep(0.05)
        self.update(files=True)

    def wait_for_files(self, ranks: Iterable[int], limit_s: float) -> None:
        """Wait until the reports and events of some ranks are complete.

        A shared file system may show files some time after the rank has ended.

        Args:
            ranks: The ranks; all have ended.
            limit_s: Longest wait in seconds.

        Raises:
            IncompleteError: A file is missing or truncated after `limit_s`; the message lists them.
        """
        waiting, deadline_s = list(ranks), time.monotonic() + limit_s
        while True:
            self.update(files=True)
            missing = {rank: text for rank in waiting if (text := self._find_missing(rank))}
            if not missing:
                return
            if time.monotonic() >= deadline_s:
                text = "; ".join(f"rank {rank}: {what}" for rank, what in missing.items())
                message = f"{text}, {limit_s:g} s (latency_wait_s) after the end"
                raise IncompleteError(message, list(missing))
            waiting = list(missing)
            time.sleep(min(_POLL_S, max(0.0, deadline_s - time.monotonic())))

    def _find_missing(self, rank: int) -> str | None:
        """Return what is missing or truncated in a rank's files, in words; None if nothing is."""
        wrong, report = [], rank_files.report_path(self.folder, rank)
        if rank not in self.reported:
            try:
                strict_json.loads(report.read_text())
            except FileNotFoundError:
                wrong.append(f"no {report.name}")
            except (OSError, ValueError):
                wrong.append(f"{report.name} is cut")
        lines = self.events.get(rank)
        if not lines:
            wrong.append(f"no {rank_files.events_path(self.folder, rank).name}")
        elif lines[-1].name is not EventName.END:
            wrong.append(f"its events end with '{lines[-1].name}'")
        return " and ".join(wrong) or None

    def request_give_up(self) -> None:
        """Request all ranks to end their programs and to report the lines at which these hang."""
        for writer in [*self._ranks]:
            assert self._loop is not None  # there are connections
            self._loop.call_soon_threadsafe(writer.write, link.YES)

    def _append_to_file(self, path: Path, unsaved: bytearray) -> None:
        """Append the buffer `unsaved` to a file, and remove the written bytes from the buffer."""
        with path.open("ab", buffering=0) as file:
            while content := bytes(unsaved):
                written = file.write(content)
                with self._lock:
                    del unsaved[:written]

    def _store_event(self, rank: int, event: Event, interval_s: float = INTERVAL_S) -> None:
        """Add an event of a rank to `events`, or its heartbeat to `beats`.

        Args:
            rank: The rank.
            event: The event or heartbeat.
            interval_s: Seconds within which the next heartbeat is expected.
        """
        if event.name is EventName.BEAT:
            self.beats[rank] = Heartbeat(**event.details, interval_s=interval_s)
            return
        lines = self.events.setdefault(rank, [])
        if lines and lines[-1].name is event.name is EventName.WORKING:
            lines.pop()  # a program of days has thousands of them
        lines.append(event)
        self.progress += 1

    async def _serve(self, listener: socket.socket, serves: threading.Event) -> None:
        """Accept connections until the context of `serve` ends: a thread's function.

        Args:
            listener: The bound socket.
            serves: Set when the server listens.
        """
        # no executor: its module, imported while the launcher forks ranks, loses its lock
        self._loop = asyncio.get_running_loop()
        serves.set()
        listener.setblocking(False)
        listener.listen(socket.SOMAXCONN)  # connections that wait there take no descriptor
        accepting = asyncio.create_task(self._accept(listener))
        await self._ended.wait()
        accepting.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections one at a time: many at once could use up the file descriptors."""
        conversations: set[asyncio.Task[None]] = set()
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                reader, writer = await asyncio.open_connection(sock=connection)
            except OSError as error:  # as too few descriptors; the connection waits
                self._warn_of_error(error)
                self._abort_strangers(len(self._strangers) - 1)
                await asyncio.sleep(_RETRY_S)
                continue
            self._abort_strangers(_STRANGERS_MAX - 1)
            self._strangers[writer] = None
            task = asyncio.create_task(self._converse(reader, writer))
            conversations.add(task)
            task.add_done_callback(conversations.discard)

    def _abort_strangers(self, left: int) -> None:
        """Close the oldest unauthenticated connections until only `left` of them remain."""
        while len(self._strangers) > max(left, 0):
            oldest = next(iter(self._strangers))
            self._refuse(oldest, "it did not show the secret")
            oldest.transport.abort()

    def _warn_of_error(self, error: OSError) -> None:
        """Print a warning about an error of the operating system, once for each error number."""
        if error.errno not in self._faults:
            self._faults.add(error.errno)
            print(f"WARNING: connections to this launcher wait: {error}", flush=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Authenticate a connection and answer its messages until it closes."""
        try:
            # `wait_for` of Python 3.11 loses a cancellation that comes with its result
            async with asyncio.timeout(_STRANGER_S):
                rank = await self._authenticate(reader, writer)
            while True:
                kind, size = link.HEAD.unpack(await reader.readexactly(link.HEAD.size))
                if size > _MESSAGE_BYTES_MAX:
                    raise ValueError(f"a message of {size} bytes")
                content = await reader.readexactly(size)
                writer.write(await self._answer(rank, kind, content, writer))
        except (ValueError, LookupError, TypeError) as error:
            self._refuse(writer, str(error))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
            if writer in self._strangers:
                self._refuse(writer, "it did not show the secret")
        finally:
            self._strangers.pop(writer, None)
            self._ranks.discard(writer)
            writer.close()

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        """Send a challenge on a new connection and return the rank that proves to have the secret.

        Raises:
            ValueError: The other side is no rank, or its proof is wrong.
        """
        challenge = secrets.token_bytes(link.CHALLENGE_BYTES)
        writer.write(challenge)
        magic, rank, shown = link.HELLO.unpack(await reader.readexactly(link.HELLO.size))
        if magic != link.MAGIC:
            raise ValueError("it is no rank")
        if not hmac.compare_digest(shown, link.compute_proof(self._secret, challenge, rank)):
            raise ValueError("wrong secret")
        self._strangers.pop(writer, None)
        return int(rank)

    async def _answer(
        self, rank: int, kind: bytes, content: bytes, writer: asyncio.StreamWriter
    ) -> bytes:
        """Process a message of a rank and return the bytes of the answer; b"" for an event.

        Args:
            rank: The rank.
            kind: Letter of the message, such as `link.EVENT`.
            content: Content of the message.
            writer: The rank's connection, through which `request_give_up` later reaches the rank.
        """
        if kind == link.EVENT:
            if (event := events.parse_event(content)) is None or event.rank != rank:
                raise ValueError(f"rank {rank} sent no event")
            self._ranks.add(writer)
            self._store_event(rank, event)
            if event.name is not EventName.BEAT:
                self._queue_line(events.RANKS_EVENTS, content)
            return b""
        if kind == link.TIME:
            return link.MOMENT.pack(clock.now())
        if kind == link.REPORT:
            self._queue_line(rank_files.REPORTS, content)
            self.reported.add(rank)
            return link.YES
        if kind == link.COORDINATOR:
            while (last := self._last_event(0)) not in (EventName.END, EventName.FAILED):
                await asyncio.sleep(_POLL_S)
            return link.YES if last is EventName.END else link.NO
        raise ValueError(f"rank {rank} sent an unknown message")

    def _last_event(self, rank: int) -> EventName | None:
        """Return the name of a rank's last event; None before its first."""
        lines = self.events.get(rank)
        return lines[-1].name if lines else None

    def _queue_line(self, name: str, content: bytes) -> None:
        """Add a line to the lines that `update` appends to a file.

        Args:
            name: Name of the file in the attempt's folder.
            content: The line, without its end.
        """
        with self._lock:
            self._unsaved[name] += content.rstrip() + b"\n"

    def _refuse(self, writer: asyncio.StreamWriter, why: str) -> None:
        """Count a refused connection, and warn about the 1st, 2nd, 4th, 8th and so on."""
        self._strangers.pop(writer, None)
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:
            host = (writer.get_extra_info("peername") or ("an unknown host",))[0]
            text = f"connection {self.refused} to this launcher from {host} is refused: {why}"
            print(f"WARNING: {text}", flush=True)


def _bind_socket(host: str) -> socket.socket:
    """Return a TCP socket that is bound to a free port.

    It is bound to the loopback interface if `host` is the loopback address, else to all interfaces.
    """
    if host in ("localhost", "127.0.0.1"):
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # the kernel knows IPv6, and has none switched on
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _raise_file_limit(number: int) -> None:
    """Raise this process's limit of open files to `number`, but not above the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        allowed = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
