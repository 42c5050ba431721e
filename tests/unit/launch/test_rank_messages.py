"""Ranks report to their launcher over the network; nobody else can, and files serve without it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import generator
import pytest
from builders import SCRIPTS, wait_until
from tfscaling.cluster import resolver
from tfscaling.launch import heartbeat, link, rank_files, rank_messages, rank_process
from tfscaling.launch.link import HEAD, HELLO, LauncherConnection
from tfscaling.launch.rank_messages import RankMessageServer
from tfscaling.launch.rank_process import RankContext
from tfscaling.record import events
from tfscaling.record.events import EventLog, EventName

#: A heartbeat.
USED = {"number": 1, "cpu_s": 0.5, "io_bytes": 7, "blocked": False, "cpu_wait_s": 0.25}


@pytest.fixture
def messages(tmp_path: Path) -> RankMessageServer:
    return RankMessageServer(tmp_path)


@pytest.fixture
def address(messages: RankMessageServer) -> Iterator[str]:
    with messages.serve("127.0.0.1", 2) as found:
        yield found


def log_of(folder: Path, rank: int, own: LauncherConnection) -> EventLog:
    return EventLog(rank_files.events_path(folder, rank), rank, own.post)


def names(messages: RankMessageServer, rank: int) -> list[str]:
    return [event.name for event in messages.events.get(rank, [])]


def place(address: str) -> tuple[str, int]:
    host, _, port = address.split()[0].rpartition(":")
    return host, int(port)


def test_what_ranks_report_is_in_one_file_of_the_launcher(
    messages: RankMessageServer, address: str, tmp_path: Path
) -> None:
    for rank in (0, 1):
        own = LauncherConnection(address, rank)
        offset = own.measure_offset()
        assert offset is not None and abs(offset.offset_s) <= offset.uncertainty_s + 0.05
        log = log_of(tmp_path, rank, own)
        log.add(EventName.START, host="h", offset_s=2.0)
        log.add(EventName.BEAT, **USED)
        log.add(EventName.END)
        own.send_report(b'{"rank": %d}' % rank)
    wait_until(lambda: names(messages, 0) == names(messages, 1) == ["start", "end"])
    assert messages.beats[1].cpu_s == 0.5 and messages.reported == {0, 1}
    assert messages.beats[1].interval_s == heartbeat.INTERVAL_S
    messages.wait_for_files([0, 1], 0.0)
    assert {path.name for path in tmp_path.iterdir()} == {events.RANKS_EVENTS, rank_files.REPORTS}
    found = events.read_events_by_rank(tmp_path)
    assert [[e.name for e in lines] for lines in found.values()] == [["start", "end"]] * 2
    assert found[0][0].time_s == pytest.approx(found[0][0].host_time_s + 2.0, abs=1.0)


def test_a_report_is_sent_only_while_the_launcher_is_there(
    messages: RankMessageServer, tmp_path: Path
) -> None:
    """A rank writes a file if not."""
    report = generator.training_report()
    with messages.serve("127.0.0.1", 1) as address:
        assert rank_process.send_report(report, LauncherConnection(address, 0))
        connection = LauncherConnection(address, 0)
    assert messages.reported == {0}
    assert not rank_process.send_report(report, connection)
    assert not rank_process.send_report(report, None)


def test_the_launcher_ends_while_a_rank_connects(tmp_path: Path) -> None:
    """A connection at any moment of the end; a test that hangs fails by its time limit."""
    for _ in range(1000):
        with RankMessageServer(tmp_path).serve("127.0.0.1", 1) as address:
            connection = LauncherConnection(address, 0)
        connection.close()


def test_a_rank_that_loses_its_launcher_writes_all_it_has_reported(
    messages: RankMessageServer, tmp_path: Path
) -> None:
    with messages.serve("127.0.0.1", 1) as address:
        own = LauncherConnection(address, 0)
        log = log_of(tmp_path, 0, own)
        log.add(EventName.START)
        wait_until(lambda: names(messages, 0) == ["start"])
    assert not own.wait_for_give_up(300.0) and not own.is_open
    log.add(EventName.IMPORTED)
    log.add(EventName.BEAT, **USED)
    messages.update(files=True)
    assert names(messages, 0) == ["start", "imported"]
    # it may be written, and read, just after the last reading
    beat = messages.beats[0]
    assert (beat.number, beat.interval_s) == (1, 2 * heartbeat.FILES_INTERVAL_S)
    assert [e.name for e in events.read_events_by_rank(tmp_path)[0]] == ["start", "imported"]
    assert link.connect(address, 0) is None
    assert link.connect("", 0) is None


def test_ranks_hear_that_they_are_given_up(
    messages: RankMessageServer, address: str, tmp_path: Path
) -> None:
    own = LauncherConnection(address, 0)
    log_of(tmp_path, 0, own).add(EventName.START)
    wait_until(lambda: names(messages, 0) == ["start"])
    assert not own.wait_for_give_up(0.0)
    messages.request_give_up()
    assert own.wait_for_give_up(300.0) and own.is_open


def test_of_a_program_that_works_for_days_the_launcher_keeps_the_last_sign_in_memory(
    messages: RankMessageServer, address: str, tmp_path: Path
) -> None:
    log = log_of(tmp_path, 0, LauncherConnection(address, 0))
    for name in (EventName.PROGRAM_STARTED, *[EventName.WORKING] * 100, EventName.END):
        log.add(name)
    wait_until(lambda: messages.progress == 102)
    assert names(messages, 0) == [EventName.PROGRAM_STARTED, EventName.WORKING, "end"]


@pytest.mark.parametrize("last", [EventName.END, EventName.FAILED])
def test_servers_wait_for_the_end_of_their_coordinator(
    messages: RankMessageServer, address: str, tmp_path: Path, last: EventName
) -> None:
    log, found = log_of(tmp_path, 0, LauncherConnection(address, 0)), []
    log.add(EventName.START)
    waiting = threading.Thread(
        target=lambda: found.append(LauncherConnection(address, 1).wait_for_coordinator())
    )
    waiting.start()
    log.add(EventName.BUILT)
    assert not found
    log.add(last)
    waiting.join(300)
    assert found == [last is EventName.END]


def test_without_a_connection_servers_read_the_events_of_their_coordinator(tmp_path: Path) -> None:
    config = {"cluster": {"ps": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}}
    cluster = resolver.resolve({"TF_CONFIG": json.dumps(config)})
    for last in (EventName.FAILED, EventName.END):
        EventLog(rank_files.events_path(tmp_path, 0), 0).add(last)
        log = EventLog(rank_files.events_path(tmp_path, 1), 1)
        context = RankContext(cluster, tmp_path, log, 0.0, None)
        assert context.wait_for_coordinator() == (last is EventName.END)


def sends(content: bytes) -> Callable[[str], None]:
    def send(address: str) -> None:
        with socket.create_connection(place(address)) as connection:
            with contextlib.suppress(OSError):  # it is closed meanwhile
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):
                    pass

    return send


def with_another_secret(address: str) -> None:
    own = LauncherConnection(f"{address.split()[0]} {'0' * 64}", 1)
    own.post('{"event": "end", "time_s": 1.0, "rank": 1}')
    assert own.measure_offset() is None


def floods(connections: int) -> Callable[[str], None]:
    """Opens connections, 200 of them at once."""

    def send(address: str) -> None:
        held: deque[socket.socket] = deque()
        for _ in range(connections):
            held.append(socket.create_connection(place(address)))
            if len(held) > 200:
                held.popleft().close()
        for each in held:
            each.close()

    return send


def sends_as_rank(content: bytes) -> Callable[[str], None]:
    """With the secret, as after a fault of a rank."""

    def send(address: str) -> None:
        own = LauncherConnection(address, 1)
        with contextlib.closing(own), contextlib.suppress(OSError):
            own._socket.sendall(content)
            own._receive(1)

    return send


FAKES = {
    "wrong secret": with_another_secret,
    "garbage": sends(os.urandom(1000)),
    "nothing": sends(b""),
    "HTTP": sends(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b"x" * 100),
    "hello without a proof": sends(HELLO.pack(link.MAGIC, 1, bytes(32))),
    "100 MB": sends(bytes(100_000_000)),
    "500 connections": floods(500),
    "10,000 connections": floods(10_000),
    "unknown message": sends_as_rank(HEAD.pack(b"?", 0)),
    "no event": sends_as_rank(HEAD.pack(link.EVENT, 5) + b"[1,2]"),
    "event of another rank": sends_as_rank(
        HEAD.pack(link.EVENT, 43) + b'{"event": "end", "time_s": 1.0, "rank": 0} '
    ),
    "100,000 brackets": sends_as_rank(HEAD.pack(link.EVENT, 100_000) + b"[" * 100_000),
    "brackets in an event": sends_as_rank(
        HEAD.pack(link.EVENT, 100_010) + b'{"event":' + b"[" * 100_001
    ),
    "4 GB": sends_as_rank(HEAD.pack(link.EVENT, (1 << 32) - 1)),
}


MANY = pytest.param("10,000 connections", marks=pytest.mark.full)


@pytest.mark.parametrize("fake", [*(name for name in FAKES if name not in MANY.values), MANY])
def test_fake_messages_change_nothing_and_are_reported(
    messages: RankMessageServer,
    address: str,
    tmp_path: Path,
    fake: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    log = log_of(tmp_path, 0, LauncherConnection(address, 0))
    log.add(EventName.START)
    FAKES[fake](address)
    wait_until(lambda: messages.refused > 0)
    # the ranks are heard as before, and further ones may come
    log.add(EventName.END)
    another = LauncherConnection(address, 1)
    assert another.measure_offset() is not None
    log_of(tmp_path, 1, another).add(EventName.START)
    wait_until(lambda: names(messages, 0) == ["start", "end"] and names(messages, 1) == ["start"])
    messages.update(files=True)
    assert (messages.beats, messages.reported) == ({}, set())
    assert {path.name for path in tmp_path.iterdir()} == {events.RANKS_EVENTS}
    assert "connection 1 to this launcher from 127.0.0.1 is refused: " in capfd.readouterr().out


def test_a_burst_of_strangers_takes_no_more_connections_than_allowed(
    messages: RankMessageServer,
    address: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # none is closed for its silence
    monkeypatch.setattr(rank_messages, "_STRANGER_S", 3600.0)
    before, number = len(os.listdir("/proc/self/fd")), random.randint(500, 700)
    with contextlib.ExitStack() as held:
        for _ in range(number):
            held.enter_context(socket.create_connection(place(address)))
        wait_until(lambda: messages.refused >= number - rank_messages._STRANGERS_MAX)
        taken = len(os.listdir("/proc/self/fd")) - before - number
        assert taken <= rank_messages._STRANGERS_MAX + 8
        # a rank comes in meanwhile
        log_of(tmp_path, 0, LauncherConnection(address, 0)).add(EventName.START)
        wait_until(lambda: names(messages, 0) == ["start"])
    # told whenever their number doubles
    told = [int(line.split()[2]) for line in capfd.readouterr().out.splitlines()]
    assert told == [2**n for n in range(len(told))]
    assert 2 * told[-1] > number - rank_messages._STRANGERS_MAX


def test_a_new_stranger_closes_the_oldest(
    address: str, monkeypatch: pytest.MonkeyPatch, dice: random.Random
) -> None:
    most = dice.randint(2, 9)
    monkeypatch.setattr(rank_messages, "_STRANGERS_MAX", most)
    monkeypatch.setattr(rank_messages, "_STRANGER_S", 3600.0)
    with contextlib.ExitStack() as held:
        strangers = []
        for _ in range(most + dice.randint(1, most)):
            each = held.enter_context(socket.create_connection(place(address), timeout=60))
            assert len(each.recv(100)) == link.CHALLENGE_BYTES  # it is accepted before the next
            strangers.append(each)
        for oldest in strangers[:-most]:
            with contextlib.suppress(ConnectionResetError):
                assert oldest.recv(100) == b""
        for other in strangers[-most:]:
            other.setblocking(False)
            with pytest.raises(BlockingIOError):  # it is open
                other.recv(100)


def test_a_stranger_that_stays_silent_is_let_go(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_messages, "_STRANGER_S", 0.2)
    with socket.create_connection(place(address), timeout=20) as silent:
        assert len(silent.recv(100)) == link.CHALLENGE_BYTES
        assert silent.recv(100) == b""


@pytest.mark.timeout(100)
def test_a_firewall_that_drops_packets_holds_a_rank_up_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel drops packets for a listener whose queue is full."""
    monkeypatch.setattr(link, "_CONNECT_S", 0.2)
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        assert link.connect(f"127.0.0.1:{port} {'0' * 64}", 0) is None


#: A launcher that may open few files; it ends with its standard input.
LAUNCHER = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tfscaling.launch.rank_messages import RankMessageServer
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
messages = RankMessageServer(Path(sys.argv[2]))
with messages.serve("127.0.0.1", 2) as address:
    print(address, flush=True)
    sys.stdin.read()
    print(messages.events, flush=True)
"""


def test_too_few_descriptors_are_reported_once_and_ranks_come_in(tmp_path: Path) -> None:
    limit = random.randint(40, 120)
    words = [sys.executable, "-c", LAUNCHER, str(SCRIPTS), str(tmp_path), str(limit)]
    with (
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as launcher,
        contextlib.ExitStack() as held,
    ):
        assert launcher.stdout is not None
        address = launcher.stdout.readline().decode().strip()
        for _ in range(3 * limit):
            held.enter_context(socket.create_connection(place(address)))
        own = LauncherConnection(address, 0)
        assert own.measure_offset() is not None
        log_of(tmp_path, 0, own).add(EventName.START)
        assert own.measure_offset() is not None  # it was read
        output, _ = launcher.communicate()
    text = output.decode()
    assert text.count("Too many open files") == 1 and "'start'" in text, text
    assert "Traceback" not in text and len(text.splitlines()) < 20


def test_the_secret_is_in_no_file_and_no_command_line(
    messages: RankMessageServer, address: str, tmp_path: Path
) -> None:
    log_of(tmp_path, 0, LauncherConnection(address, 0)).add(EventName.START)
    wait_until(lambda: names(messages, 0) == ["start"])
    messages.update(files=True)
    secret = address.split()[1].encode()
    assert len(bytes.fromhex(secret.decode())) == 32
    assert not any(secret in path.read_bytes() for path in tmp_path.iterdir())


def test_a_rank_whose_last_events_were_lost_writes_all_of_them(
    messages: RankMessageServer, tmp_path: Path
) -> None:
    """The network may break just before the end: the kernel still accepts what is sent."""
    relay, ends = socket.create_server(("127.0.0.1", 0)), list[socket.socket]()
    with messages.serve("127.0.0.1", 1) as address:
        secret = address.partition(" ")[2]

        def carry() -> None:
            """Connect the rank with the launcher until the event `start`, then drop all."""
            here, _ = relay.accept()
            there = socket.create_connection(place(address))
            ends.extend((here, there))
            here.sendall(there.recv(link.CHALLENGE_BYTES))
            here.settimeout(0.2)
            while names(messages, 0) != ["start"]:
                with contextlib.suppress(TimeoutError):  # the launcher still reads
                    there.sendall(here.recv(1 << 16))

        thread = threading.Thread(target=carry)
        thread.start()
        host, port = relay.getsockname()
        own = LauncherConnection(f"{host}:{port} {secret}", 0)
        log = log_of(tmp_path, 0, own)
        log.add(EventName.START)
        thread.join()
        assert own.wait_until_delivered()
        ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ends[0].close()  # which the rank does not notice by itself
        log.add(EventName.END)
        if not own.wait_until_delivered():
            log.write_posted()
        messages.update(files=True)
        assert names(messages, 0) == ["start", "end"]
        ends[1].close()
    relay.close()


def test_events_that_the_launcher_has_are_in_no_file(
    messages: RankMessageServer, address: str, tmp_path: Path
) -> None:
    own = LauncherConnection(address, 0)
    log = log_of(tmp_path, 0, own)
    for _ in range(100):
        log.add(EventName.PROGRESS, text="x" * 10_000)
    assert own.wait_until_delivered()
    wait_until(lambda: len(messages.events.get(0, [])) == 100)
    assert not [*tmp_path.glob("rank-*")]
