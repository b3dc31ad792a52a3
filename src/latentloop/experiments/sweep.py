"""Many workers, one list of jobs: workers that share a storage share one queue of jobs, and no job is done twice.

The storage is one of Optuna's: a journal file, or the URL of a database. A job is a trial. A worker takes a waiting trial,
which the storage gives to one worker only, and counts up a beat while it works. A trial whose beat stands still
is one of a worker that was killed: it is marked as failed, and the job waits again, to be resumed from its run folder if
that can be reached. Results are kept in the storage too, so that machines need to share nothing else.
"""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DatabaseError, OperationalError

from latentloop.errors import UserError
from latentloop.experiments.jobs import Job
from latentloop.experiments.store import Result

BEAT_SECONDS, STALE_SECONDS = 10.0, 90.0
"""How often a worker shows that it lives, and after how long without a sign it counts as killed."""
TRIES = 10
"""How often a database is opened whose tables somebody else is making."""
Standing = Literal["waiting", "running", "done"]


def open_storage(where: str) -> BaseStorage:
    """Open a journal file by its path, or a database by its URL; raise a UserError if that cannot be done."""
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        if "://" in where:
            return _database(where)
        path = Path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path))))
    except Exception as error:  # drivers have no common class of errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        shown = _without_password(where)
        raise UserError(f"cannot use the storage {shown}: {reason.replace(where, shown)}") from error


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
    scheme, separator, rest = where.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}" if separator and at else where


@dataclass
class Board:
    """Jobs in a storage: what waits, who works on what, what is done. All experiments share what they have in common."""

    study: optuna.Study
    jobs: dict[str, Job]
    """By key, in the order in which they are taken."""
    beats: dict[int, tuple[Any, float]] = field(default_factory=dict)
    """The last beat seen of each running trial, and when it was first seen, by this process's own clock."""

    @classmethod
    def open(cls, where: str, jobs: Sequence[Job], *, study_name: str = "latentloop") -> "Board":
        """Open the board of a storage for some jobs, and add those that are not on it."""
        storage = open_storage(where)
        study = optuna.create_study(study_name=study_name, storage=storage, direction="maximize", load_if_exists=True)
        board = cls(study=study, jobs={job.key: job for job in jobs})
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
        words: dict[TrialState, Standing] = {TrialState.COMPLETE: "done", TrialState.RUNNING: "running"}
        found = self._trials()
        order: list[Standing] = ["done", "running", "waiting"]
        return {
            key: min(
                (words.get(trial.state, "waiting") for trial in found.get(key, [])), key=order.index, default="waiting"
            )
            for key in self.jobs
        }

    def results(self) -> Iterator[Result]:
        """Yield the results of all jobs that are done."""
        for trials in self._trials().values():
            for trial in trials:
                if trial.state == TrialState.COMPLETE and "result" in trial.user_attrs:
                    yield trial.user_attrs["result"]
                    break

    def progress(self) -> dict[str, dict[str, Any]]:
        """Return what running workers last told, by key."""
        return {
            key: trial.user_attrs["beat"]
            for key, trials in self._trials().items()
            for trial in trials
            if trial.state == TrialState.RUNNING and "beat" in trial.user_attrs
        }

    def take(self) -> tuple[optuna.Trial, Job] | None:
        """Take the first of these jobs that waits, or None if there is none now."""
        storage, found = self.study._storage, self._trials()
        for key, job in self.jobs.items():
            first = next(iter(found.get(key, [])), None)  # two workers may have added one job: its first trial counts
            if first is None or first.state != TrialState.WAITING:
                continue
            with suppress(UpdateFinishedTrialError):
                taken = storage.set_trial_state_values(first._trial_id, state=TrialState.RUNNING)
                if taken:  # else another was quicker
                    return optuna.Trial(self.study, first._trial_id), job
        return None

    def finish(self, trial: optuna.Trial, result: Result) -> None:
        """Keep a result, and mark its job as done."""
        trial.set_user_attr("result", result)
        self.study.tell(trial, result["average"])

    def give_back(self, trial: optuna.Trial, reason: str) -> None:
        """Let a job wait again that was not finished."""
        with suppress(UpdateFinishedTrialError):  # taken for a killed worker's, it waits already
            trial.set_user_attr("reason", reason)
        self._release(trial.number, trial.user_attrs["key"])

    def give_up(self, trial: optuna.Trial, reason: str) -> None:
        """Mark a job as one that cannot be done; whoever opens the board anew may try again."""
        with suppress(UpdateFinishedTrialError):
            trial.set_user_attr("reason", reason)
            self.study.tell(trial, state=TrialState.FAIL)

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
                if (now - since > STALE_SECONDS or _is_gone(beat)) and self._release(trial.number, key):
                    freed.append(self.jobs[key].name if key in self.jobs else key)
        return freed

    def _release(self, number: int, key: str) -> bool:
        """Mark a trial as failed, and let its job wait again; return whether nobody had done so before."""
        try:
            self.study.tell(number, state=TrialState.FAIL)
        except (UpdateFinishedTrialError, ValueError):  # found or made finished by somebody else
            return False
        self._enqueue(key, self.jobs[key].name if key in self.jobs else key)
        return True

    def _enqueue(self, key: str, name: str) -> None:
        self.study.enqueue_trial({}, user_attrs={"key": key, "name": name})

    def _trials(self) -> dict[str, list[FrozenTrial]]:
        """Return the trials of each job that have not failed, the first one first."""
        found: dict[str, list[FrozenTrial]] = {}
        for trial in self.study.get_trials(deepcopy=False):
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

    A job that is interrupted waits again.
    """
    while True:
        for name in board.free_killed():
            say(f"{name}: its worker is gone, the job waits again")
        taken = board.take()
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
        except UserError as error:  # this job's own fault: others may do better
            board.give_up(trial, str(error))
            say(f"{job.name}: failed, {error}")
            continue
        except BaseException as error:
            board.give_back(trial, type(error).__name__)
            raise
        keep(result)
        with suppress(UpdateFinishedTrialError):
            board.finish(trial, result)
        say(f"{job.name}: done, {100 * result['average']:.1f} % solved on average")
