"""Kills, signals and a second process: each scenario yields once for every fault, after checking that nothing is lost."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from fault.damage import with_folders
from fault.process import LostError, Process, command, wait_for
from fault.runs import (
    EVALUATION,
    METHODS,
    RNG,
    copied,
    finish,
    fresh,
    root,
    same_result,
    same_run,
    start,
    steps_of,
    whole,
)


def kill_training() -> Iterator[str]:
    """SIGKILL at a random moment of training, again and again, until the run is done."""
    total = 0
    seconds = {method: command(*start(method), folder=fresh("timed")).check(0).seconds for method in METHODS}
    while total < 40:
        method = METHODS[total % len(METHODS)]
        folder = fresh("kill")
        killed = 0
        while True:
            before = steps_of(folder / "run")
            resume = (folder / "run/config.json").is_file()
            process = Process(("train", "--resume", "run") if resume else start(method), folder)
            if killed < 4:
                time.sleep(RNG.uniform(0, 0.7 * seconds[method]))
            else:
                process.wait().check(0)
                break
            process.signal(signal.SIGKILL)
            if process.wait().code != -signal.SIGKILL:
                break
            killed += 1
            total += 1
            if steps_of(folder / "run") < before:
                raise LostError(f"step {before} became step {steps_of(folder / 'run')}")
            yield "killed"
        same_run(folder / "run", whole(method))


def kill_at_files() -> Iterator[str]:
    """SIGKILL before every third change of a file or folder that training makes, one after the other."""
    whole("stable")
    for number in range(RNG.randrange(3), 10_000, 3):
        folder = fresh("operation")
        done = Process(start("stable"), folder, kill_before=number).wait()
        if done.code != -signal.SIGKILL:
            done.check(0)
            return
        finish(folder, "stable")
        yield "killed"


def kill_while_settling() -> Iterator[str]:
    """SIGKILL before every second change of a file when a copy with folders in place of pointers is resumed."""
    for number in range(0, 24, 2):
        folder = copied("stable")
        with_folders(folder / "run")
        done = Process(("train", "--resume", "run"), folder, kill_before=number).wait()
        if done.code != -signal.SIGKILL:
            done.check(0)
        finish(folder, "stable")
        yield "killed"


def kill_evaluation() -> Iterator[str]:
    """SIGKILL at random moments, and at file operations, of an evaluation; the same command again gives the same."""
    model = whole("stable")
    words = ("evaluate", str(model), *EVALUATION, "--output")
    expected = root() / "evaluation.json"
    seconds = command(*words, expected, folder=root()).check(0).seconds
    for number in range(45):
        folder = fresh("evaluation")
        chosen = None if number < 30 else number - 30
        process = Process((*words, "result.json"), folder, kill_before=chosen)
        if chosen is None:
            time.sleep(RNG.uniform(0, seconds))
            process.signal(signal.SIGKILL)
        if process.wait().code != -signal.SIGKILL:
            continue
        kept = 0
        if (folder / "result.json").exists():
            kept = len(json.loads((folder / "result.json").read_text())["rows"])
        command(*words, "result.json", folder=folder).check(0)
        same_result(folder / "result.json", expected)
        yield f"killed, {kept} of 3 sizes kept"


def terminate() -> Iterator[str]:
    """SIGTERM and Ctrl-C at random moments of training: saved, exit code 143 or 130, and resumed."""
    for number in range(16):
        method = METHODS[number % len(METHODS)]
        kind, code = ((signal.SIGTERM, 143), (signal.SIGINT, 130))[number // 4 % 2]
        folder = fresh("stop")
        process = Process(start(method), folder)
        wait_for(lambda run=folder / "run": (run / "metrics.jsonl").exists())
        time.sleep(RNG.uniform(0.05, 0.3))
        process.signal(kind)
        done = process.wait().check(code, 0)
        if done.code and steps_of(folder / "run") == 0:
            raise LostError("nothing was saved")
        finish(folder, method)
        if done.code:
            yield f"exit code {code}, saved"


def terminate_others() -> Iterator[str]:
    """SIGTERM and Ctrl-C in evaluate, certify and dataset: what is finished is kept."""
    model = str(whole("stable"))
    small = str(fresh("small") / "run")  # few values, so that there are few entries to certify
    command(*start("stable", small), "--modulus", "5", folder=Path(small).parent).check(0)
    jobs = {
        "evaluate": ("evaluate", model, "--sizes", "4", "6", "8", "--instances", "256", "--output"),
        "certify": ("certify", small, "--sizes", "8", "10", "..", "24", "--output"),
    }
    for words in jobs.values():
        expected = fresh("expected") / "result.json"
        command(*words, expected, folder=expected.parent).check(0, 1)
        for kind, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)) * 2:
            folder = fresh("interrupted")
            path = folder / "result.json"
            process = Process((*words, "result.json"), folder)
            wait_for(path.exists)
            process.signal(kind)
            done = process.wait().check(code, 0, 1)
            if done.code == code:
                kept = json.loads(path.read_text())
                if not kept["interrupted"] or "interrupted" not in done.err:
                    raise LostError("not marked as interrupted")
            command(*words, "result.json", folder=folder).check(0, 1)
            same_result(path, expected)
            if done.code == code:
                yield f"exit code {code}, kept"
    for kind, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)) * 2:
        for suffix in ("jsonl", "npz"):
            folder = fresh("dataset")
            process = Process(("dataset", "--count", "40000", "--nodes", "16", "--output", f"data.{suffix}"), folder)
            time.sleep(RNG.uniform(0.3, 1.0))
            process.signal(kind)
            done = process.wait().check(code, 0)
            if any(folder.glob(".*")):
                raise LostError("temporary files are left")
            if done.code == code and (folder / f"data.{suffix}").exists():
                settings = json.loads((folder / f"data.{suffix}.config.json").read_text())
                if suffix == "jsonl" and len((folder / "data.jsonl").read_bytes().splitlines()) != settings["count"]:
                    raise LostError("the settings name another number of problems")
            yield f"exit code {done.code}"


def two_processes() -> Iterator[str]:
    """A second process on one run folder is refused in one line that names the first, which goes on."""
    for number in range(6):
        method = METHODS[number % len(METHODS)]
        whole(method)
        folder = fresh("two")
        first = Process(start(method), folder)
        wait_for((folder / "run/config.json").exists)
        time.sleep(RNG.uniform(0, 0.1))
        second = command("train", "--resume", "run", folder=folder)
        done = first.wait().check(0)
        if second.code == 2 and f"process {first.pid} on" not in second.refused().err:
            raise LostError(f"the holder is not named: {second.err}")
        if second.code not in (0, 2) or done.code:
            raise LostError(f"exit codes {done.code} and {second.code}")
        same_run(folder / "run", whole(method))
        if second.code == 2:
            yield "second refused, first undisturbed"
