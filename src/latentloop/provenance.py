"""Where a number comes from: the command, the code, the machine and the day that made it."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PLACES = ("--storage", "--runs")
"""Options that say where workers meet: nothing that a number depends on, and a storage's URL may hold a password."""


def provenance() -> dict[str, Any]:
    """Describe this run, to be stored beside whatever it measures."""
    return {
        "command": shlex.join([_program(), *_without(PLACES, sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        "versions": {name: found for name in ("latentloop", "numpy", "torch") if (found := _version(name))},
    }


def _without(options: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line but for some options and their values."""
    after_option = False
    for word in words:
        if not after_option and word.partition("=")[0] not in options:
            yield word
        after_option = word in options


def _program() -> str:
    """Return the name to type for what runs here."""
    name = Path(sys.argv[0]).name
    return "latentloop" if name == "__main__.py" else name


def machine() -> dict[str, Any]:
    """Describe the machine in a few words that matter for timings."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }


def processor() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str | None:
    """Return the commit of a source checkout, with a mark when files differ from it; None for an installed package."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # fails inside a repository that is not ours
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
