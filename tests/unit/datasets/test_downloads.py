"""Downloads from a web server of this test, and by a small program in place of npm."""

from __future__ import annotations

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fake_programs import program
from tfscaling.datasets import downloads


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that comes before all others."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a web server, and the folder that it serves."""
    folder = tmp_path / "web"
    folder.mkdir()
    monkeypatch.setenv("no_proxy", "*")
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)
    )
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def pack(path: Path, **files: bytes) -> bytes:
    """Write an archive with the files below `package/`; returns its bytes."""
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path.read_bytes()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_file_of_the_web_is_checked_and_removed_in_the_end(web: tuple[str, Path]) -> None:
    address, served = web
    (served / "one").write_bytes(b"1")
    with downloads.web_file(f"{address}/one", sha256(b"1"))() as folder:
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"one": b"1"}
    assert not folder.exists()


def test_an_archive_of_the_web_is_unpacked(web: tuple[str, Path]) -> None:
    address, served = web
    checksum = sha256(pack(served / "all.tar.gz", one=b"1"))
    with downloads.web_file(f"{address}/all.tar.gz", checksum, "package")() as folder:
        assert (folder / "one").read_bytes() == b"1"


def test_a_file_of_the_web_with_another_checksum_is_refused(web: tuple[str, Path]) -> None:
    address, served = web
    (served / "one").write_bytes(b"1")
    with pytest.raises(ValueError, match="one"), downloads.web_file(f"{address}/one", "0" * 64)():
        pass


def test_a_file_that_the_web_lacks_and_a_closed_port_are_errors(web: tuple[str, Path]) -> None:
    address, _ = web
    with pytest.raises(OSError, match="404"), downloads.web_file(f"{address}/one", "0" * 64)():
        pass
    with socket.socket() as bound:  # not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(OSError, match="refused"), downloads.web_file(f"{closed}/a", "0" * 64)():
            pass


def test_the_folder_of_an_npm_package(programs: Path, tmp_path: Path) -> None:
    pack(tmp_path / "packed.tgz", **{"data/one": b"1", "two": b"22"})
    # npm pack NAME --silent --pack-destination FOLDER
    program(programs, "npm", f'test "$2" = things@1.0 && cp {tmp_path}/packed.tgz "$5/"')
    with downloads.npm_package("things@1.0", "data")() as folder:
        assert [path.name for path in folder.iterdir()] == ["one"]
    with downloads.npm_package("things@1.0")() as folder:
        assert (folder / "two").read_bytes() == b"22"
    assert not folder.exists()


def test_a_failure_has_the_programs_last_line(programs: Path) -> None:
    program(programs, "npm", "echo noise >&2; echo no such host >&2; exit 4")
    with pytest.raises(RuntimeError, match=r"npm .* 4: no such host$"):
        downloads.npm_package("things@1.0")().__enter__()


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"^sleep took longer than 0.2 s$"):
        downloads.run_program("sleep", "600", timeout_s=0.2)
