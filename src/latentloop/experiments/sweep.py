"""Many workers, one list of jobs: workers that share a storage share one queue of jobs, and no job is done twice.

The storage is one of Optuna's: a journal file, or the URL of a database. A job is a trial. A worker takes a waiting trial,
which the storage gives to one worker only, and counts up a beat while it works. A trial whose beat stands still
is one of a worker that was killed: it is marked as failed, and the job waits again, to be resumed from its run folder if
that can be reached. Results are kept in the storage too, so that machines need to share nothing else.

What fails with the storage is tried again for a while, and then a UserError of one line that names it.
"""

import json
import logging
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import DatabaseError, OperationalError

from latentloop.errors import MachineError, UserError
from latentloop.experiments.jobs import Job
from latentloop.experiments.store import Result

BEAT_SECONDS, STALE_SECONDS = 10.0, 90.0
"""How often a worker shows that it lives, and after how long without a sign it counts as killed."""
TRIES = 10
"""How often a database is opened whose tables somebody else is making."""
PAUSES = (0.1, 0.3, 1.0, 3.0, 5.0, 10.0)
"""Seconds between tries to reach a storage that fails, together less than a worker may be silent for."""
RECORD = b'{"op_code":'
"""How every record of a journal begins."""
Standing = Literal["waiting", "running", "done"]


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn what goes wrong with a storage into a UserError of one line that names it, without its password."""
    try:
        yield
    except UpdateFinishedTrialError:  # an answer, not a failure
        raise
    except Exception as error:  # drivers have no common class of errors
        said = (getattr(error, "strerror", None) or str(error)).strip()
        reason = said.splitlines()[0] if said else type(error).__name__
        shown = _without_password(where)
        raise UserError(f"cannot use the storage {shown}: {reason.replace(where, shown)}") from error


def open_storage(where: str) -> BaseStorage:
    """Open a journal file by its path, or a database by its URL; raise a UserError if that cannot be done."""
    optuna.logging.set_verbosity(logging.ERROR)
    with naming(where):
        if "://" in where:
            return _database(where)
        path = Path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_journal(path)
        return JournalStorage(JournalFileBackend(where, lock_obj=JournalLock(path)))


def _check_journal(path: Path) -> None:
    """Refuse what is there and no journal: it would be written to, and a device can be read without end."""
    if not path.exists():
        return
    if not path.is_file():
        raise ValueError("a journal is a regular file, and this is none")
    with path.open("rb") as file:
        start = file.read(len(RECORD))
        if not RECORD.startswith(start):  # an empty file will do
            raise ValueError("it is a file of another kind, which would be written to: name a new one")
        file.seek(0)
        for number, record in enumerate(file, 1):
            if record.endswith(b"\n") and not _is_json(record):  # half a record at the end is cut off by JournalLock
                raise ValueError(
                    f"its line {number} is damaged: name a new storage; stored results are kept, and runs resume from "
                    "their folders"
                )


def _is_json(record: bytes) -> bool:
    try:
        json.loads(record)
    except ValueError:  # also of bytes that are no text
        return False
    return True


class JournalLock(JournalFileOpenLock):
    """The lock that a journal is written under; whoever takes it cuts off half a record at the end.

    A full disk or a killed writer leaves one, and nothing that is written after it could be read.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path

    def acquire(self) -> bool:
        """Wait for the lock, and take it."""
        taken = super().acquire()
        with suppress(OSError), self.path.open("rb+") as file:  # what is wrong here is wrong for the writer too
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return taken


def _database(where: str) -> RDBStorage:
    """Open a database. Of workers that start at once, all but one may find its tables half made, and look again."""
    for left in reversed(range(TRIES)):
        try:
            return RDBStorage(where)
        except (DatabaseError, StorageInternalError) as error:
            if not left or isinstance(error, OperationalError):  # the server cannot be reached
                raise
            time.sleep(random.uniform(0.1, 0.5))
    raise AssertionError


def _without_password(where: str) -> str:
    where = re.sub(r"([?&]password=)[^&]*", r"\1...", where)
    scheme, separator, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}" if separator and at else where


@dataclass
class Board:
    """Jobs in a storage: what waits, who works on what, what is done. All experiments share what they have in common."""

    where: str
    """The storage, as the user names it."""
    study: optuna.Study
    jobs: dict[str, Job]
    """By key, in the order in which they are taken."""
    beats: dict[int, tuple[Any, float]] = field(default_factory=dict)
    """The last beat seen of each running trial, and when it was first seen, by this process's own clock."""

    @classmethod
    def open(cls, where: str, jobs: Sequence[Job], *, study_name: str = "latentloop") -> "Board":
        """Open the board of a storage for some jobs, and add those that are not on it."""
        storage = open_storage(where)
        with naming(where):
            study = optuna.create_study(
                study_name=study_name, storage=storage, direction="maximize", load_if_exists=True
            )
        board = cls(where=where, study=study, jobs={job.key: job for job in jobs})
        board.add_missing()
        return board

    def add_missing(self) -> None:
        """Let every job wait that no trial stands for."""
        found = self._trials()
        for key, job in self.jobs.items():
            if not found.get(key):
                self._enqueue(key, job.name)

    def standing(self) -> dict[str, Standing]:
        """Return how each job stands, by key."""
        found = self._trials()
        states = {key: {trial.state for trial in found.get(key, [])} for key in self.jobs}
        return {
            key: "done" if TrialState.COMPLETE in all_of else "running" if TrialState.RUNNING in all_of else "waiting"
            for key, all_of in states.items()
        }

    def results(self) -> dict[str, Result]:
        """Return the results of all jobs that are done, by key."""
        return {
            key: trial.user_attrs["result"]
            for key, trials in self._trials().items()
            for trial in reversed(trials)  # of several, the first one
            if trial.state == TrialState.COMPLETE and isinstance(trial.user_attrs.get("result"), dict)
        }

    def progress(self) -> dict[str, dict[str, Any]]:
        """Return what running workers last told, by key."""
        return {
            key: trial.user_attrs["beat"]
            for key, trials in self._trials().items()
            for trial in trials
            if trial.state == TrialState.RUNNING and "beat" in trial.user_attrs
        }

    def reasons(self) -> dict[str, str]:
        """Return why jobs were not done when they were last tried, by key."""
        trials = self._ask(self.study.get_trials, deepcopy=False, states=[TrialState.FAIL])
        return {t.user_attrs["key"]: t.user_attrs["reason"] for t in trials if {"key", "reason"} <= t.user_attrs.keys()}

    def take(self, leave: Container[str] = ()) -> tuple[optuna.Trial, Job] | None:
        """Take the first of these jobs that waits, or None if there is none now; keys in ``leave`` are left to others."""
        storage, found = self.study._storage, self._trials()
        for key, job in self.jobs.items():
            trials = found.get(key, [])
            done = any(trial.state == TrialState.COMPLETE for trial in trials)  # by a worker taken for a killed one
            if done or key in leave or not trials:
                continue
            first = trials[0]  # two workers may have added one job: its first trial counts
            if first.state != TrialState.WAITING:
                continue
            with suppress(UpdateFinishedTrialError):
                taken = self._ask(storage.set_trial_state_values, first._trial_id, state=TrialState.RUNNING)
                if taken:  # else another was quicker
                    return self._ask(optuna.Trial, self.study, first._trial_id), job
        return None

    def finish(self, trial: optuna.Trial, result: Result) -> None:
        """Keep a result, and mark its job as done; also where its worker was slow, and taken for a killed one."""
        try:
            self._ask(trial.set_user_attr, "result", result)
            self._end(trial._trial_id, TrialState.COMPLETE, result["average"])
        except UpdateFinishedTrialError:
            about = {name: trial.user_attrs[name] for name in ("key", "name")}
            done = create_trial(value=result["average"], user_attrs=about | {"result": result})
            self._ask(self.study.add_trial, done)

    def give_back(self, trial: optuna.Trial, reason: str) -> None:
        """Let a job wait again that was not finished."""
        with suppress(UpdateFinishedTrialError):  # taken for a killed worker's, it waits already
            self._ask(trial.set_user_attr, "reason", reason)
        self._release(trial._trial_id, trial.user_attrs["key"])

    def give_up(self, trial: optuna.Trial, reason: str) -> None:
        """Mark a job as one that cannot be done; whoever opens the board anew may try again."""
        with suppress(UpdateFinishedTrialError):
            self._ask(trial.set_user_attr, "reason", reason)
            self._end(trial._trial_id, TrialState.FAIL)

    def free_killed(self) -> list[str]:
        """Let the jobs of killed workers wait again; return their names."""
        freed, now = [], time.monotonic()
        for key, trials in self._trials().items():
            for trial in trials:
                if trial.state != TrialState.RUNNING:
                    continue
                beat = trial.user_attrs.get("beat")
                last, since = self.beats.get(trial.number, (None, now))
                if trial.number not in self.beats or last != beat:
                    self.beats[trial.number] = beat, now
                    since = now
                if (now - since > STALE_SECONDS or _is_gone(beat)) and self._release(trial._trial_id, key):
                    freed.append(self.jobs[key].name if key in self.jobs else key)
        return freed

    def _release(self, trial_id: int, key: str) -> bool:
        """Mark a trial as failed, and let its job wait again; return whether nobody had done so before."""
        try:
            self._end(trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return False
        self._enqueue(key, self.jobs[key].name if key in self.jobs else key)
        return True

    def _end(self, trial_id: int, state: TrialState, *values: float) -> None:
        """Give a trial its last state; raise UpdateFinishedTrialError if it has one."""
        self._ask(self.study._storage.set_trial_state_values, trial_id, state, values or None)

    def _enqueue(self, key: str, name: str) -> None:
        self._ask(self.study.enqueue_trial, {}, user_attrs={"key": key, "name": name})

    def _ask(self, call: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Ask the storage for something; where it fails ask again, and raise a UserError in the end."""
        for pause in PAUSES:
            try:
                return call(*values, **named)
            except UpdateFinishedTrialError:
                raise
            except Exception:  # drivers have no common class of errors
                time.sleep(pause)
        with naming(self.where):
            return call(*values, **named)

    def _trials(self) -> dict[str, list[FrozenTrial]]:
        """Return the trials of each job that have not failed, the first one first."""
        found: dict[str, list[FrozenTrial]] = {}
        for trial in self._ask(self.study.get_trials, deepcopy=False):
            key = trial.user_attrs.get("key")
            if key is not None and trial.state != TrialState.FAIL:
                found.setdefault(key, []).append(trial)
        return found


def _is_gone(beat: dict[str, Any] | None) -> bool:
    """Return whether a beat is of a process of this machine that is no more."""
    if not beat or beat.get("host") != socket.gethostname():
        return False
    try:
        os.kill(beat["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def beating(trial: optuna.Trial, tell: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Count up a trial's beat while something works on it, with what there is to tell about it."""
    stop = threading.Event()
    place = {"host": socket.gethostname(), "pid": os.getpid()}

    def beat() -> None:
        count = 0
        while not stop.wait(BEAT_SECONDS if count else 0):
            count += 1
            try:
                trial.set_user_attr("beat", {"count": count, **place, **tell()})
            except UpdateFinishedTrialError:  # the worker was taken for a killed one: its result still counts
                return
            except Exception as error:  # a storage that cannot be reached now may be reached at the next beat
                logging.getLogger(__name__).warning("no beat: %s", error)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def work(
    board: Board,
    measure: Callable[[Job], Result],
    tell: Callable[[Job], dict[str, Any]],
    keep: Callable[[Result], None],
    say: Callable[[str], None],
    *,
    wait: float = 5.0,
) -> bool:
    """Take jobs until none waits and none is running anywhere; return whether all of them are done.

    A job that is interrupted waits again, and so does one that this machine cannot do: then its error ends this worker,
    before it takes the others too.
    """
    held: set[str] = set()  # keys of jobs whose run folders other processes hold
    while True:
        for name in board.free_killed():
            say(f"{name}: its worker is gone, the job waits again")
        taken = board.take(leave=held)
        if taken is None:
            standing = board.standing().values()
            if "running" not in standing:
                return all(word == "done" for word in standing)
            time.sleep(wait)
            continue
        trial, job = taken
        say(f"{job.name}: started")
        try:
            with beating(trial, lambda job=job: tell(job)):
                result = measure(job)
            keep(result)
        except BaseException as error:
            fault, reason = _fault(error), str(error) or type(error).__name__
            if fault == "job":  # others may do better
                board.give_up(trial, reason)
                say(f"{job.name}: failed, {reason}")
                continue
            with suppress(UserError):  # a storage that fails too
                board.give_back(trial, reason)
            if fault == "worker":
                raise
            held.add(job.key)
            say(f"{job.name}: left to others, {reason}")
            continue
        board.finish(trial, result)
        say(f"{job.name}: done, {100 * result['average']:.1f} % solved on average")


def _fault(error: BaseException) -> Literal["job", "folder", "worker"]:
    """Return what kept a job from being done: itself, its run folder that another process holds, or this worker."""
    if isinstance(error.__cause__, BlockingIOError):
        return "folder"
    machine = isinstance(error, MachineError) or isinstance(error.__cause__, OSError)  # a device, a disk
    return "job" if isinstance(error, UserError) and not machine else "worker"
