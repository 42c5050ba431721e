"""provision/closed/wheelhouse.py: which files a lock needs, and what set-up refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import wheelhouse
from project import REPOSITORY
from wheelhouse import Manifest, Target, WheelhouseError

LOCK = REPOSITORY / "requirements.txt"
OWN = wheelhouse.own_target()


def pins(target: Target) -> set[str]:
    return {p.requirement.split()[0] for p in wheelhouse.read_packages(LOCK.read_text(), target)}


def test_the_markers_of_the_lock_are_those_of_the_target() -> None:
    old, new = (pins(Target(python, "x86_64", "2.28")) for python in ("3.11", "3.13"))
    assert {pin.split("==")[0] for pin in old} == {pin.split("==")[0] for pin in new}
    assert {pin.split("==")[0] for pin in old - new} >= {"numpy", "scipy"}
    assert not {pin for pin in old | new if pin.startswith(("colorama", "pyreadline3"))}


def test_every_package_has_the_hashes_of_its_own_entry() -> None:
    found = {p.name: p for p in wheelhouse.read_packages(LOCK.read_text(), OWN)}
    assert len(found) > 60
    assert found["connection-pool"].files == 1
    assert all(p.requirement.count("--hash=sha256:") == p.files > 0 for p in found.values())


@pytest.mark.parametrize(
    ("name", "glibc"),
    [
        ("a-1-py3-none-any.whl", (0, 0)),
        ("a-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", (2, 27)),
        ("a-1-cp36-abi3-manylinux2014_x86_64.whl", (2, 17)),
        ("a-1-cp311-cp311-manylinux_2_5_x86_64.manylinux1_x86_64.whl", (2, 5)),
    ],
)
def test_the_oldest_glibc_of_a_wheel(name: str, glibc: tuple[int, int]) -> None:
    assert wheelhouse.required_glibc(name) == glibc


def test_no_wheel_for_a_newer_glibc_is_asked_for() -> None:
    tags = Target("3.11", "x86_64", "2.17").platforms()
    assert tags[0] == "manylinux_2_17_x86_64"
    assert "manylinux2014_x86_64" in tags
    assert "manylinux2014_x86_64" not in Target("3.11", "x86_64", "2.12").platforms()


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """(wheelhouse with a wheel and a dataset, its lock)."""
    folder, lock = tmp_path / "wheelhouse", tmp_path / "requirements.txt"
    lock.write_text("a==1\n")
    for name in ("wheels/a-1-py3-none-any.whl", "datasets/d.npz"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(name)
    files = [path for path in folder.rglob("*") if path.is_file()]
    Manifest(
        OWN,
        {lock.name: wheelhouse.sha256(lock)},
        {str(path.relative_to(folder)): wheelhouse.sha256(path) for path in files},
    ).write(folder)
    return folder, lock


def test_a_whole_wheelhouse_is_taken(
    made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = made
    monkeypatch.chdir(tmp_path)
    wheelhouse.check_wheelhouse(folder, [lock])
    assert wheelhouse.copy_datasets(folder) == [Path("results/datasets/d.npz")]
    assert Path("results/datasets/d.npz").read_text() == "datasets/d.npz"
    Path("results/datasets/d.npz").write_text("mine")
    assert wheelhouse.copy_datasets(folder) == []
    assert Path("results/datasets/d.npz").read_text() == "mine"


def refused(folder: Path, *locks: Path) -> str:
    with pytest.raises(WheelhouseError) as error:
        wheelhouse.check_wheelhouse(folder, locks)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"python": "3.10"}, "TARGET_PYTHON="),
        ({"machine": "ppc64le"}, "TARGET_MACHINE="),
        ({"glibc": "2.99"}, "TARGET_GLIBC="),
    ],
)
def test_a_wheelhouse_for_another_machine_is_refused(
    made: tuple[Path, Path], change: dict[str, str], named: str
) -> None:
    folder, lock = made
    manifest = Manifest.read(folder)
    replace(manifest, target=replace(manifest.target, **change)).write(folder)
    assert named in refused(folder, lock)
    assert next(iter(change.values())) in refused(folder, lock)


def test_another_lock_and_a_lock_that_was_left_out_are_refused(made: tuple[Path, Path]) -> None:
    folder, lock = made
    for name, words in (("cuda", " CUDA=1"), ("dev", " DEV=1"), ("trainer", "")):
        part = lock.with_name(f"requirements-{name}.txt")
        part.write_text("b==1\n")
        assert refused(folder, lock, part).endswith(f"make wheelhouse{words}")
    lock.write_text("a==2\n")
    assert lock.name in refused(folder, lock)


def test_changed_and_missing_files_and_folders_are_named(made: tuple[Path, Path]) -> None:
    folder, lock = made
    (data,) = (folder / "datasets").iterdir()
    data.write_text("other")
    with pytest.raises(WheelhouseError, match="d.npz"):
        wheelhouse.copy_datasets(folder)
    (wheel,) = (folder / "wheels").iterdir()
    wheel.write_text("other")
    assert str(wheel) in refused(folder, lock)
    wheel.unlink()
    assert str(wheel) in refused(folder, lock)
    assert "make wheelhouse" in refused(folder.parent / "elsewhere", lock)


def test_a_folder_of_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(WheelhouseError):
        wheelhouse.make_wheelhouse(tmp_path, [], OWN, [])
    assert (tmp_path / "thesis.tex").exists()
