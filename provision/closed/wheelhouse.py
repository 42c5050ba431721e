#!/usr/bin/env python3
"""A folder with what set-up and sweeps fetch from the internet, for machines that have none.

`make` fills it where there is internet. `check` and `take` run where there is none, before and
after the environment exists: they need nothing but Python. See docs/closed-network.md.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
WHEELS = "wheels"
DATASETS = "datasets"
#: The project itself, for `git clone`.
BUNDLE = "project.bundle"
#: Where ranks read prepared data.
PREPARED = Path("results/datasets")
#: The glibc of RHEL 8 and its like, where this machine has none to go by.
OLD_GLIBC = "2.28"
#: What the older names of wheels for Linux need of glibc.
MANYLINUX = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


class WheelhouseError(Exception):
    """Error in one line: what is missing or wrong, and the command that repairs it."""


@dataclass(frozen=True)
class Target:
    """The machines for which the wheels are.

    Attributes:
        python: Version of Python, such as 3.12.
        machine: Architecture of the processor: x86_64 or aarch64.
        glibc: Oldest version of glibc on which the wheels run.
    """

    python: str
    machine: str
    glibc: str

    def environment(self) -> dict[str, str]:
        """Return name → value of the variables that markers of requirements use."""
        own = platform.python_version()
        full = own if own.startswith(f"{self.python}.") else f"{self.python}.99"
        return {
            "implementation_name": "cpython", "os_name": "posix", "platform_machine": self.machine,
            "platform_python_implementation": "CPython", "platform_system": "Linux",
            "python_full_version": full, "python_version": self.python, "sys_platform": "linux",
        }  # fmt: skip

    def platforms(self) -> list[str]:
        """Return the platform tags of wheels that run on the target, newest first, as in pip."""
        newest = parse_version(self.glibc)[1]
        tags = [f"manylinux_2_{minor}" for minor in range(newest, 4, -1)]
        tags += [tag for tag, glibc in reversed(MANYLINUX.items()) if glibc[1] <= newest]
        return [f"{tag}_{self.machine}" for tag in (*tags, "linux")]


@dataclass(frozen=True)
class Manifest:
    """The content of a wheelhouse, kept in its file manifest.json.

    Attributes:
        target: The machines for which the wheels are.
        locks: Name of a lock, or path of a file with user requirements → its SHA-256.
        files: Path of a file in the folder → its SHA-256.
    """

    target: Target
    locks: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a wheelhouse.

        Raises:
            WheelhouseError: The folder has no readable manifest; `make wheelhouse` writes it last.
        """
        try:
            content = json.loads((folder / MANIFEST).read_text())
        except (OSError, ValueError) as error:
            raise WheelhouseError(
                f"{folder / MANIFEST} cannot be read ({error}): WHEELHOUSE is the folder that "
                "`make wheelhouse` makes on a machine with internet"
            ) from None
        return cls(Target(**content["target"]), content["locks"], content["files"])

    def write(self, folder: Path) -> None:
        """Write the manifest to the folder of the wheelhouse."""
        (folder / MANIFEST).write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def parse_version(text: str) -> tuple[int, int]:
    """Return the first two numbers of a version."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def own_target() -> Target:
    """Return the target that is this machine with this Python.

    Without glibc on this machine, the target has the glibc of old distributions (OLD_GLIBC).
    """
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    library, glibc = platform.libc_ver()
    python = "{}.{}".format(*sys.version_info)
    return Target(python, machine, glibc if library == "glibc" else OLD_GLIBC)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- make -------------------------------------------------------------------------------------


def make_wheelhouse(
    folder: Path,
    locks: Sequence[Path],
    target: Target,
    configs: Sequence[Path],
    own: Sequence[Path] = (),
) -> Manifest:
    """Delete and refill the folder of a wheelhouse; its manifest is written last.

    Args:
        folder: The folder.
        locks: Lock files of the project; their packages are downloaded.
        target: The machines for which the wheels are.
        configs: Configuration files whose prepared data is copied.
        own: Requirement files from users, without hashes: the locks set the versions of packages
            that they have.

    Raises:
        WheelhouseError: The folder has other files, or a part cannot be downloaded or prepared.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).exists():
        raise WheelhouseError(f"{folder} has other files and no {MANIFEST}: name another FOLDER")
    datasets = dict.fromkeys(file for config in configs for file in prepare_data(config))
    shutil.rmtree(folder, ignore_errors=True)
    (folder / DATASETS).mkdir(parents=True)
    glibc = download(locks, target, folder / WHEELS)
    if own:
        glibc = max(
            glibc, download_user_packages(own, locks, target, folder / WHEELS), key=parse_version
        )
    for file in datasets:
        copy = shutil.copytree if file.is_dir() else shutil.copy2
        copy(file, folder / DATASETS / file.name)
    if Path(".git").exists():  # a project that came by snakedeploy is carried as it came
        run_program(
            ["git", "bundle", "create", str(folder / BUNDLE), "HEAD", *checked_out_branch()],
            "no bundle",
        )
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest = Manifest(
        dataclasses.replace(target, glibc=glibc),
        {
            **{lock.name: sha256(lock) for lock in locks},
            **{str(file): sha256(file) for file in own},
        },
        {str(path.relative_to(folder)): sha256(path) for path in files},
    )
    manifest.write(folder)
    return manifest


def download(locks: Sequence[Path], target: Target, wheels: Path) -> str:
    """Download all packages of the locks for the target; pip checks their hashes.

    Args:
        locks: The lock files.
        target: The machines for which the wheels are.
        wheels: The folder to which the packages are downloaded.

    Returns:
        The oldest glibc on which all wheels run.

    Raises:
        WheelhouseError: A download fails, or a package has only its source for the target.
    """
    locked = [package for lock in locks for package in read_packages(lock.read_text(), target)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.write("\n".join(dict.fromkeys(package.requirement for package in locked)))
        chosen.flush()
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--prefer-binary", "--requirement", chosen.name),
            *("--dest", str(wheels), "--implementation", "cp", "--python-version", target.python),
            *(f"--platform={tag}" for tag in target.platforms()),
        ]
        run_program(command, "the packages cannot be downloaded")
    with_wheels = {package.name for package in locked if package.files > 1}
    needed = (0, 0)
    for path in wheels.iterdir():
        if path.suffix == ".whl":
            needed = max(needed, required_glibc(path.name))
        elif (name := re.split(r"-\d", path.name)[0].replace("_", "-")) in with_wheels:
            raise WheelhouseError(
                f"there is no wheel of {name} for Python {target.python} on {target.machine} with "
                f"glibc {target.glibc}, only its source: take another TARGET_PYTHON or TARGET_GLIBC"
            )
    return "{}.{}".format(*needed)


def download_user_packages(
    own: Sequence[Path], locks: Sequence[Path], target: Target, wheels: Path
) -> str:
    """Download the packages in user requirements, with their dependencies, as wheels.

    Args:
        own: The requirement files.
        locks: The lock files, which set the versions of their packages.
        target: The machines for which the wheels are.
        wheels: The folder to which the packages are downloaded.

    Returns:
        The oldest glibc on which the downloaded wheels run.

    Raises:
        WheelhouseError: The download fails.
    """
    locked = [package for lock in locks for package in read_packages(lock.read_text(), target)]
    before = {path.name for path in wheels.iterdir()}
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
        versions.write("".join(f"{package.requirement.split()[0]}\n" for package in locked))
        versions.flush()
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--only-binary=:all:", "--constraint", versions.name, "--dest", str(wheels)),
            *(word for file in own for word in ("--requirement", str(file))),
            *("--implementation", "cp", "--python-version", target.python),
            *(f"--platform={tag}" for tag in target.platforms()),
        ]
        run_program(command, f"the packages of {own[0]} cannot be downloaded")
    added = [path.name for path in wheels.iterdir() if path.name not in before]
    return "{}.{}".format(*max(map(required_glibc, added), default=(0, 0)))


@dataclass(frozen=True)
class Package:
    """A package of a lock.

    Attributes:
        name: Name of the package.
        requirement: The package for pip: name, version and hashes.
        files: Number of files, wheels and source, whose hashes are in the lock.
    """

    name: str
    requirement: str
    files: int


def read_packages(lock: str, target: Target) -> Iterator[Package]:
    """Yield the packages of a lock whose markers allow the target.

    Args:
        lock: Text of the lock.
        target: The machines for which the packages are.
    """
    from packaging.markers import Marker

    for entry in re.split(r"\n(?=[a-z0-9])", lock):
        if not (head := re.match(r"([a-z0-9._-]+)(\[\S+\])?==([^\s;]+)(?: ; (.*?))? \\\n", entry)):
            continue
        name, _, pinned, marker = head.groups()
        if not marker or Marker(marker).evaluate(target.environment()):
            hashes = re.findall(r"--hash=\S+", entry)
            yield Package(name, " ".join([f"{name}=={pinned}", *hashes]), len(hashes))


def required_glibc(wheel: str) -> tuple[int, int]:
    """Return the oldest glibc on which a wheel runs, by its file name; (0, 0) if it needs none."""
    tags = wheel.removesuffix(".whl").split("-")[-1].split(".")
    found = [re.match(r"manylinux(?:_(\d+)_(\d+)|\d+)", tag) for tag in tags]
    versions = [(int(tag[1]), int(tag[2])) if tag[1] else MANYLINUX[tag[0]] for tag in found if tag]
    return min(versions, default=(0, 0))


def prepare_data(config: Path) -> list[Path]:
    """Return the files of a configuration's prepared data; prepare missing data first.

    Args:
        config: The configuration file.

    Raises:
        WheelhouseError: Snakemake fails.
    """
    words = ["snakemake", "--profile", "profiles/local", "--configfile", str(config)]
    target = "prepare_datasets"
    summary = run_program([*words, "--summary", "--", target], f"{config} has no plan").splitlines()
    start = next((n for n, line in enumerate(summary) if line.startswith("output_file\t")), None)
    rows = [] if start is None else list(csv.DictReader(summary[start:], delimiter="\t"))
    files = [Path(row["output_file"]) for row in rows if row["output_file"] != "-"]
    if any(row["plan"] != "no update" for row in rows):
        run_program([*words, "--", target], f"the data of {config} cannot be prepared")
    beside = [file.with_suffix(".files") for file in files]
    return [*files, *(folder for folder in dict.fromkeys(beside) if folder.is_dir())]


def checked_out_branch() -> list[str]:
    """Return [name of the checked-out branch], so that a clone has it, too; [] without a branch."""
    shown = subprocess.run(["git", "branch", "--show-current"], capture_output=True, text=True)
    return shown.stdout.split()


def run_program(command: Sequence[str], complaint: str) -> str:
    """Run a program and return its output.

    Args:
        command: The command line.
        complaint: What cannot be done without it, for the error.

    Raises:
        WheelhouseError: The program fails; the message has the last lines that it printed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-8:]
        raise WheelhouseError(
            "\n  ".join([f"{complaint}: {shlex.join(command[:4])} … said", *said])
        )
    return done.stdout


# --- check and take ---------------------------------------------------------------------------


def check_wheelhouse(folder: Path, locks: Sequence[Path], own_files: Sequence[Path] = ()) -> None:
    """Check that a wheelhouse has unchanged wheels for these requirements and this Python.

    Args:
        folder: The folder of the wheelhouse.
        locks: The lock files.
        own_files: Requirement files from users.

    Raises:
        WheelhouseError: It has not.
    """
    manifest, own = Manifest.read(folder), own_target()
    target = manifest.target
    if own.python != target.python:
        raise WheelhouseError(
            f"{folder} is for Python {target.python}, and this is {own.python}: "
            f"make setup TRAINER=1 WHEELHOUSE={folder} PYTHON=python{target.python}, or, with "
            f"internet, make wheelhouse TARGET_PYTHON={own.python}"
        )
    if own.machine != target.machine or parse_version(own.glibc) < parse_version(target.glibc):
        raise WheelhouseError(
            f"{folder} is for {target.machine} with glibc {target.glibc} or later, and this is "
            f"{own.machine} with {own.glibc}: with internet, make wheelhouse "
            f"TARGET_PYTHON={own.python} TARGET_MACHINE={own.machine} TARGET_GLIBC={own.glibc}"
        )
    for lock in locks:
        part = re.fullmatch(r"requirements-(cuda|parquet|dev)\.txt", lock.name)
        again = f"make wheelhouse {part[1].upper()}=1" if part else "make wheelhouse"
        if manifest.locks.get(lock.name) != sha256(lock):
            raise WheelhouseError(
                f"{folder} was made {'of another' if lock.name in manifest.locks else 'without'} "
                f"{lock.name}: with internet, in this version of the project, {again}"
            )
    for file in own_files:
        if manifest.locks.get(str(file)) != sha256(file):
            raise WheelhouseError(
                f"{folder} was made without this {file}: with internet, make wheelhouse"
            )
    check_files(folder, manifest, WHEELS)


def check_files(folder: Path, manifest: Manifest, part: str) -> list[Path]:
    """Return the files of one part of a wheelhouse, after a comparison with the manifest.

    Args:
        folder: The folder of the wheelhouse.
        manifest: Its manifest.
        part: Name of the part, a folder such as `wheels`.

    Raises:
        WheelhouseError: A file is missing or has changed; the error is about the first such file.
    """
    paths = [folder / name for name in manifest.files if name.startswith(f"{part}/")]
    for path in paths:
        what = None
        if not path.is_file():
            what = "is missing"
        elif sha256(path) != manifest.files[str(path.relative_to(folder))]:
            what = "changed"
        if what:
            raise WheelhouseError(
                f"{path} {what}: copy the wheelhouse again, or make it again with internet: "
                "make wheelhouse"
            )
    return paths


def copy_datasets(folder: Path) -> list[Path]:
    """Copy the datasets of a wheelhouse to results/datasets, except files that exist there.

    Args:
        folder: The folder of the wheelhouse.

    Returns:
        The new files.

    Raises:
        WheelhouseError: A dataset of the wheelhouse is missing or has changed.
    """
    manifest, taken = Manifest.read(folder), []
    for path in check_files(folder, manifest, DATASETS):
        own = PREPARED / path.relative_to(folder / DATASETS)
        if own.exists():
            continue
        own.parent.mkdir(parents=True, exist_ok=True)
        partial = own.with_name(f".{own.name}.partial")
        shutil.copyfile(path, partial)
        partial.replace(own)
        taken.append(own)
    return taken


# --- the command ------------------------------------------------------------------------------


def main() -> None:
    """Run the command `make`, `check` or `take` of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    own = own_target()
    maker = verbs.add_parser("make", help="download all of it; needs internet")
    maker.add_argument("--python", default=own.python, help="3.12, say; default: this one")
    maker.add_argument("--machine", default=own.machine, help="x86_64 or aarch64")
    maker.add_argument("--glibc", default=own.glibc, help="of the target; default: this machine's")
    maker.add_argument("--config", type=Path, nargs="*", default=[], help="whose data is wanted")
    checker = verbs.add_parser("check", help="whether set-up can use it, before it begins")
    for verb in (maker, checker):
        verb.add_argument("--locks", type=Path, nargs="+", required=True)
        verb.add_argument("--own", type=Path, nargs="*", default=[], help="own requirements")
    taker = verbs.add_parser("take", help="put its datasets in results/datasets")
    for verb in (maker, checker, taker):
        verb.add_argument("folder", type=Path)
    args = parser.parse_args()
    try:
        if args.verb == "make":
            target = Target(args.python, args.machine, args.glibc)
            made = make_wheelhouse(args.folder, args.locks, target, args.config, args.own)
            print(describe_wheelhouse(args.folder, made))
        elif args.verb == "check":
            check_wheelhouse(args.folder, args.locks, args.own)
        else:
            for path in copy_datasets(args.folder):
                print(f"{path}: from {args.folder}")
    except WheelhouseError as error:
        sys.exit(f"ERROR: {error}")


def describe_wheelhouse(folder: Path, manifest: Manifest) -> str:
    """Return lines about a wheelhouse, as one text: its target, and the size of each part."""
    sizes: dict[str, int] = {}
    for name in manifest.files:
        part = name.split("/")[0]
        sizes[part] = sizes.get(part, 0) + (folder / name).stat().st_size
    target = manifest.target
    runs_on = f"Python {target.python} on {target.machine} with glibc {target.glibc} or later"
    lines = [f"  {part}: {size / 1e6:.0f} MB" for part, size in sizes.items()]
    return "\n".join([f"{folder}, for {runs_on}:", *lines])


if __name__ == "__main__":
    main()
