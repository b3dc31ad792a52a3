"""Experiments: reproduce and sweep. Signatures and docstrings are what --help shows, so torch is imported inside only."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from latentloop.commands.terminal import output as standard_output
from latentloop.commands.terminal import progress, stderr
from latentloop.errors import Terminated, UserError
from latentloop.experiments.jobs import MINUTES, TIMED, Experiment, Job
from latentloop.experiments.store import SHIPPED, Result, checked, stored, stored_results, write_result
from latentloop.experiments.table import EXPERIMENTS, experiment
from latentloop.files import check_writable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from latentloop.experiments.sweep import Board

Names = Positional[Annotated[tuple[str, ...], arg(metavar="[EXPERIMENT ...]")]]
RUNS = Path("runs") / "experiments"
JOURNAL = "sweep.journal"
REFRESH = 2.0
"""Seconds between two looks at what workers do."""


def sweep(
    names: Names = (),
    *,
    storage: str | None = None,
    folder: Path = SHIPPED,
    runs: Path = RUNS,
    weights: bool = False,
    accelerator: str | None = None,
) -> None:
    """Work on experiments: take their runs one by one, train and measure them, until none is left.

    Start it as often as you like, on as many machines as share the storage: no run is made twice, and that of a worker
    that was killed is taken up again.

    Args:
        names: Experiments, or single runs; see `latentloop reproduce`. The first are worked on first.
        storage: What workers share: a journal file, or the URL of a database such as postgresql://user@host/name.
            Default: sweep.journal among the runs.
        folder: Where results are stored, in results/.
        runs: Where runs are trained, and resumed from.
        weights: Keep a copy of the trained weights beside the results, in weights/.
        accelerator: cpu, cuda, mps or auto. Default: cpu where runs are compared by time, else auto.
    """
    missing = _missing(_jobs(names), folder)
    from latentloop.experiments.sweep import Board, work

    board = Board.open(storage or str(runs / JOURNAL), missing)
    _collect(board, folder)
    from latentloop.experiments.measure import measure, told

    def say(line: str) -> None:
        stderr.print(line)

    def result(job: Job) -> Result:  # a slow worker that was taken for a killed one may have stored it
        return stored(job, folder) or measure(job, runs, stderr, folder / "weights" if weights else None, accelerator)

    done = work(
        board,
        result,
        lambda job: told(job, runs),
        lambda result: write_result(folder, result),
        say,
    )
    _collect(board, folder)
    if not done:
        sys.exit(1)


def reproduce(
    names: Names = (),
    *,
    claim: str | None = None,
    storage: str | None = None,
    folder: Path = SHIPPED,
    runs: Path = RUNS,
    workers: int | None = None,
    weights: bool = False,
    accelerator: str | None = None,
) -> None:
    """Run experiments: what is missing is trained and measured, what was cut off is resumed, what is stored is kept.

    At the end figures are drawn, and the claims that the experiments are about are decided. Without a name, the experiments
    are listed, with what is stored of each, and all claims.

    Args:
        names: Experiments, or single points of one, such as discrete-deberta with three seeds or discrete-deberta-seed0.
        claim: Measure one claim of docs/results.md again, from the weights in weights/, and compare; nothing is stored.
        storage: What workers share; see `latentloop sweep`.
        folder: Where results are stored, in results/.
        runs: Where runs are trained, and resumed from.
        workers: Runs side by side, each on one thread. Default: as many as there are cores, or GPUs where these are used.
        weights: Keep a copy of the trained weights beside the results, in weights/.
        accelerator: What runs are trained on; see `latentloop sweep`.
    """
    if workers is not None and not 1 <= workers <= 1024:
        raise UserError(f"the number of workers must be 1 to 1,024, got {workers}")
    if not names and claim is None:
        standard_output().print(_overview(folder))
        return
    if claim is not None:
        if names:
            raise UserError(f"a claim brings its own experiment: leave {' '.join(names)} out, or --claim")
        sys.exit(0 if _measure_claim(claim, folder) else 1)
    jobs = _jobs(names)
    missing = _missing(jobs, folder)
    reasons: dict[str, str] = {}
    if missing:
        from latentloop.experiments.sweep import Board

        place = storage or str(runs / JOURNAL)
        board = Board.open(place, missing)
        _collect(board, folder)
        missing = _missing(jobs, folder)
        if missing:
            command = [sys.executable, "-m", "latentloop", "sweep", *names, "--storage", place]
            command += ["--runs", str(runs), *(["--weights"] if weights else [])]
            command += ["--accelerator", accelerator] if accelerator else []
            if folder != SHIPPED:  # a path of this machine, which stored commands would keep
                command += ["--folder", str(folder)]
            gpus = 0 if accelerator == "cpu" or (not accelerator and missing[0].point.scale in TIMED) else _gpus()
            _with_workers(
                command, min(workers or gpus or os.cpu_count() or 1, len(missing)), board, missing, runs, gpus
            )
            _collect(board, folder)
            reasons = board.reasons()
    left = _missing(jobs, folder)
    stderr.print(f"{len(jobs) - len(left)} of {len(jobs)} runs are in {folder}")
    if left:
        for job in left:
            stderr.print(f"not done: {job.name}{', ' + reasons[job.key] if job.key in reasons else ''}")
        sys.exit(1)
    chosen = [experiment(name) for name in names]
    _draw(chosen, folder)
    for name, verdict, because in _verdicts(chosen, folder):
        standard_output().print(f"{name}: {verdict}, because {because}")


def _measure_claim(name: str, folder: Path) -> bool:
    """Measure again what a claim rests on, where weights are stored; return whether its verdict is the same."""
    from latentloop.experiments.claims import decide
    from latentloop.experiments.scores import jobs_of, load

    before = load(folder, "laptop")
    if folder != SHIPPED and decide(name, before).missing:  # a folder with some runs, trained again
        before = load(SHIPPED, "laptop") | before
    verdict = decide(name, before)
    jobs = [job for job in jobs_of("laptop") if job.name in verdict.runs]
    with_weights = [job for job in jobs if (folder / "weights" / job.name).is_dir()]
    if verdict.missing:
        wanted = " ".join(verdict.missing)
        raise UserError(
            f"the claim {name} is not measured yet: {verdict.because}; run `latentloop reproduce {wanted} --weights` first"
        )
    if not with_weights:
        raise UserError(
            f"the claim {name} cannot be measured again: no weights of its runs are in {folder / 'weights'}; train them in "
            f"another folder with `latentloop reproduce {' '.join(verdict.runs)} --weights --folder FOLDER`"
        )
    from latentloop.experiments.measure import measure_again

    again = dict(before)
    with progress("runs", len(with_weights)) as advance:
        for job in with_weights:
            again[job.name] = measure_again(job, before[job.name], folder / "weights")
            scores = [100 * one[job.name]["average"] for one in (before, again)]
            stderr.print(f"{job.name}: {scores[0]:.2f} % solved on average as stored, {scores[1]:.2f} % now")
            advance(1)
    now = decide(name, again)
    kept = len(jobs) - len(with_weights)
    out = standard_output()
    out.print(f"{now.claim.sentence}")
    out.print(f"stored: {verdict.outcome}, because {verdict.because}")
    out.print(f"now:    {now.outcome}, because {now.because}{f' ({kept} runs as stored)' if kept else ''}")
    return now.outcome == verdict.outcome


def _jobs(names: Sequence[str]) -> list[Job]:
    """Return the runs of some experiments, each once, in the order they are named in."""
    from latentloop.experiments.claims import claims

    if not names:
        raise UserError(f"name an experiment: one of {', '.join(EXPERIMENTS)}")
    for name in names:
        if name in claims():
            raise UserError(
                f"{name} is a claim, not an experiment: `latentloop reproduce --claim {name}` measures it again"
            )
    return list({job.key: job for name in names for job in experiment(name).jobs}.values())


def _missing(jobs: Sequence[Job], folder: Path) -> list[Job]:
    """Return the jobs without a result; refuse a folder that results cannot be written to."""
    found = stored_results(jobs, folder)
    check_writable(folder / "results" / "x.json")
    return [job for job in jobs if job.name not in found]


def _collect(board: "Board", folder: Path) -> None:
    """Write results that other machines have put into the storage."""
    for key, result in board.results().items():
        job = board.jobs.get(key)
        if job is not None and not stored_results([job], folder):
            result |= {"point": job.point.name}  # which may have been renamed
            write_result(folder, checked(result, job, f"the result of {job.name} in the storage"))


def _draw(chosen: Sequence[Experiment], folder: Path) -> None:
    """Draw the figures of experiments from what is stored."""
    if not any(one.figures for one in chosen):
        return
    from latentloop.experiments.scores import load
    from latentloop.report.ladder import redraw

    written = []
    for one in chosen:
        scale = one.points[0].scale
        written += redraw(one.figures, load(folder, scale), folder / "figures", scale)
    stderr.print(f"wrote {len(set(written))} files to {folder / 'figures'}")


def _gpus() -> int:
    """Return the number of GPUs, on each of which a worker has its runs."""
    import torch

    return torch.cuda.device_count()


def _with_workers(
    command: Sequence[str], workers: int, board: "Board", jobs: Sequence[Job], runs: Path, gpus: int
) -> None:
    """Let workers do what is missing, and show how they get on; an interruption goes to all of them, and they save."""
    from rich.live import Live

    runs.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(workers):
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = str(number % gpus)
            with (runs / f"worker-{number}.log").open("ab") as log:
                # In a session of their own, so that Ctrl-C comes to each of them once: from here.
                worker = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
                started.append(worker)
        before: Mapping[str, str] = {}
        with Live(console=stderr, auto_refresh=False, transient=True) as live:
            while any(worker.poll() is None for worker in started):
                try:
                    standing = {board.jobs[key].name: word for key, word in board.standing().items()}
                    if stderr.is_terminal:
                        live.update(_progress_table(board, jobs, standing, workers), refresh=True)
                except UserError as error:  # workers are not stopped for that: they have runs to finish
                    stderr.print(f"{error}")
                    standing = before
                if not stderr.is_terminal:
                    for job_name, word in standing.items():
                        if word != before.get(job_name, "waiting"):
                            stderr.print(f"{job_name}: {word}")
                before = standing
                time.sleep(REFRESH)
    except BaseException as error:
        _stop(started, error)
        raise
    failed = [number for number, worker in enumerate(started) if worker.returncode]
    if failed:
        for number in failed:
            stderr.print(f"worker {number}: {_last_line(runs / f'worker-{number}.log')}")
        stderr.print(f"workers {failed} failed: see {runs}/worker-*.log")


def _stop(workers: Sequence[subprocess.Popen[bytes]], error: BaseException) -> None:
    """Let workers save what they have, and wait for them; another interruption goes to them too."""
    running = list(workers)
    while running := [worker for worker in running if worker.poll() is None]:
        for worker in running:
            worker.send_signal(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
        stderr.print("waiting for workers to save; the same command resumes what they have")
        try:
            for worker in running:
                worker.wait()
        except KeyboardInterrupt as again:
            error = again


def _last_line(log: Path) -> str:
    """Return the last thing that a worker said."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"


def _progress_table(board: "Board", jobs: Sequence[Job], standing: Mapping[str, str], workers: int) -> "Table":
    """Return a table of what is running, and how much is left."""
    from latentloop.report.console import plain_table

    told = board.progress()
    table = plain_table("run", "state", "step", "of", "minutes left")
    left = 0.0
    for job in jobs:
        word = standing[job.name]
        budget = MINUTES * job.point.budget if job.point.scale in TIMED else nan
        shown: dict[str, Any] = told.get(job.key, {})
        done = shown.get("step", 0)
        minutes = budget if not done else shown["seconds"] / 60 * (job.run.train.steps / done - 1)
        left += 0 if word == "done" or isnan(minutes) else minutes  # of runs that are not timed, those that have begun
        if word == "running":
            until = "-" if isnan(minutes) else f"{minutes:.0f}"
            table.add_row(job.name, word, f"{done:,}", f"{job.run.train.steps:,}", until)
    count = sum(word == "done" for word in standing.values())
    begun = "" if all(job.point.scale in TIMED for job in jobs) else " of what has begun"
    about = f"; about {left / max(workers, 1):.0f} minutes of training left{begun}" if left else ""
    table.caption = f"{count} of {len(jobs)} done{about}"
    return table


def _verdicts(chosen: Iterable[Experiment], folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the claims that some experiments are about: name, verdict and why, by what is stored."""
    from latentloop.experiments.claims import claims, decide
    from latentloop.experiments.scores import load

    about = {point.name for one in chosen for point in one.points}
    concerned = [
        name
        for name, claim in claims().items()
        if about & {point.name for point in EXPERIMENTS[claim.experiment].points}
    ]
    results = load(folder, "laptop") if concerned else {}
    for name in concerned:
        verdict = decide(name, results)
        yield name, f"{verdict.outcome}{', so far' if verdict.waiting else ''}", verdict.because


def _overview(folder: Path) -> "Group":
    """Return the tables of experiments and of claims."""
    from rich.console import Group

    from latentloop.report.console import plain_table

    table = plain_table("experiment", "runs", "stored", "question")
    for name, one in EXPERIMENTS.items():
        table.add_row(name, str(len(one.jobs)), str(len(stored_results(one.jobs, folder))), one.question)
    decided = plain_table("claim", "verdict")
    for name, verdict, _ in _verdicts(EXPERIMENTS.values(), folder):
        decided.add_row(name, verdict)
    return Group(table, "", decided)
