"""Workers that share a storage: no job twice, none lost."""

import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from optuna.exceptions import StorageInternalError

from latentloop.errors import MachineError, UserError
from latentloop.experiments import sweep
from latentloop.experiments.jobs import Job, Point
from latentloop.experiments.sweep import Board, beating, open_storage, work
from latentloop.files import writing
from latentloop.train.lock import locked

JOBS = [
    Job(point=Point(name=name, preset="tiny-stable", overrides={"steps": steps}, scale="rehearsal"), seed=seed)
    for name, steps in (("a", 2), ("b", 3))
    for seed in (0, 1)
]


def result(job):
    return {"point": job.point.name, "seed": job.seed, "key": job.key, "average": 0.5}


def quiet(*_):
    return {}


def do(board, measure=result):
    kept = []
    work(board, measure, quiet, kept.append, quiet, wait=0.05)
    return kept


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A PostgreSQL server of our own, on a free port of the loopback."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    owner = {}
    if os.getuid() == 0:  # the server refuses to run as root
        if "postgres" not in {user.pw_name for user in pwd.getpwall()}:
            pytest.skip("no user postgres to run a server as")
        owner = {"user": "postgres"}
    folder = Path(tmp_path_factory.mktemp("server"))
    for place in (folder, *folder.parents[:3]):
        place.chmod(0o755)
    data = folder / "data"
    data.mkdir()
    if owner:
        shutil.chown(data, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binaries, out = programs[-1].parent, subprocess.DEVNULL
    settings = dict(**owner, cwd=data, stdout=out, stderr=out)
    subprocess.run([binaries / "initdb", "-D", data, "-U", "loop", "-A", "trust", "--no-sync"], check=True, **settings)
    command = [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", data, "-c", "fsync=off"]
    process = subprocess.Popen(command, **settings)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"postgresql://loop@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@pytest.fixture(params=["journal", "database"])
def storage(request, tmp_path):
    if request.param == "journal":
        return str(tmp_path / "sweep.journal")
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL: pip install psycopg[binary]")
    return request.getfixturevalue("server")


def test_workers_share_the_jobs_and_do_each_once(storage, request):
    done, name = [], request.node.name

    def measure(job):
        time.sleep(0.05)
        done.append(job.name)
        return result(job)

    def worker():
        work(Board.open(storage, JOBS, study_name=name), measure, quiet, quiet, quiet, wait=0.05)

    threads = [threading.Thread(target=worker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(job.name for job in JOBS)
    board = Board.open(storage, JOBS, study_name=name)
    assert set(board.standing().values()) == {"done"}
    assert sorted(one["key"] for one in board.results().values()) == sorted(job.key for job in JOBS)
    assert do(board) == []


def test_an_interrupted_job_waits_again(storage, request):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)

    def interrupted(job):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(board, interrupted)
    assert list(board.standing().values()) == ["waiting"]
    assert [one["key"] for one in do(board)] == [JOBS[0].key]


def test_jobs_are_taken_in_the_order_they_were_asked_for_and_a_cut_one_is_the_next(storage, request):
    Board.open(storage, JOBS, study_name=request.node.name)
    board = Board.open(storage, JOBS[::-1], study_name=request.node.name)
    trial, first = board.take()
    assert first == JOBS[-1]
    board.give_back(trial, "interrupted")
    assert [one["key"] for one in do(board)] == [job.key for job in JOBS[::-1]]


def test_a_job_that_cannot_be_done_stops_no_other(storage, request):
    tried = []

    def measure(job):
        tried.append(job.name)
        if job == JOBS[0]:
            raise UserError("the loss is nan")
        return result(job)

    board = Board.open(storage, JOBS, study_name=request.node.name)
    kept = do(board, measure)
    assert sorted(tried) == sorted(job.name for job in JOBS)
    assert len(kept) == len(JOBS) - 1
    assert len(do(Board.open(storage, JOBS, study_name=request.node.name))) == 1


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
from test_sweep import JOBS, Board, work, quiet
board = Board.open({storage!r}, JOBS[:1], study_name={name!r})
def measure(job):
    print("started", flush=True)
    time.sleep(60)
work(board, measure, quiet, quiet, quiet)
"""


def test_the_job_of_a_killed_worker_is_taken_again(storage, request):
    name = request.node.name
    code = KILLED.format(tests=str(Path(__file__).parent), storage=storage, name=name)
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert worker.stdout.readline() == "started\n"
    board = Board.open(storage, JOBS[:1], study_name=name)
    while "pid" not in (board.progress().get(JOBS[0].key) or {}):
        time.sleep(0.05)
    assert board.free_killed() == []
    worker.kill()
    worker.wait()
    assert [one["key"] for one in do(board)] == [JOBS[0].key]


def test_a_worker_of_another_machine_is_given_up_when_its_beat_stands_still(storage, request, monkeypatch):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)
    trial, _ = board.take()
    trial.set_user_attr("beat", {"count": 7, "host": "elsewhere", "pid": 1})
    assert board.free_killed() == []
    trial.set_user_attr("beat", {"count": 8, "host": "elsewhere", "pid": 1})
    monkeypatch.setattr(sweep, "STALE_SECONDS", 0.05)
    assert board.free_killed() == []  # it has moved since
    time.sleep(0.1)
    assert board.free_killed() == [JOBS[0].name]
    with beating(trial, quiet):  # it was only slow: nothing breaks
        pass
    assert len(do(board)) == 1


def test_one_job_added_by_two_workers_is_done_once(storage, request):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)
    board._enqueue(JOBS[0].key, JOBS[0].name)
    assert len(do(board)) == 1


def test_a_worker_leaves_jobs_alone_that_it_does_not_know(storage, request):
    Board.open(storage, JOBS, study_name=request.node.name)
    (done,) = do(Board.open(storage, JOBS[1:2], study_name=request.node.name))
    assert done["key"] == JOBS[1].key
    others = do(Board.open(storage, JOBS, study_name=request.node.name))
    assert sorted(one["key"] for one in others) == sorted(job.key for job in JOBS if job != JOBS[1])


def test_a_job_that_others_took_for_lost_can_still_be_given_back_or_up(storage, request):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)
    for let_go in (board.give_back, board.give_up):
        trial, job = board.take()
        assert board._release(trial._trial_id, job.key)  # as another worker does with one that seems to be killed
        let_go(trial, "slow")
        assert board.standing() == {job.key: "waiting"}


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://loop:secret@127.0.0.1:1/none",
        "postgresql://127.0.0.1:1/none?user=loop&password=secret",
        "nonsense://x",
        "/dev/null/sweep.journal",
    ],
)
def test_a_storage_that_cannot_be_reached_is_one_line_without_the_password(where):
    with pytest.raises(UserError, match="cannot use the storage") as caught:
        open_storage(where)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def full_disk(job):
    with writing(Path("/dev/full")) as file:
        file.write("x")


def no_device(job):
    raise MachineError("cannot use 1 x cuda")


@pytest.mark.parametrize("measure", [full_disk, no_device])
def test_a_machine_that_cannot_work_stops_its_worker_and_leaves_the_jobs_to_others(storage, request, measure):
    tried = []

    def measured(job):
        tried.append(job)
        return measure(job)

    board = Board.open(storage, JOBS, study_name=request.node.name)
    healthy = Board.open(storage, JOBS, study_name=request.node.name)
    with pytest.raises(UserError, match="cannot"):
        do(board, measured)
    assert tried == JOBS[:1]
    assert [one["key"] for one in do(healthy)] == [job.key for job in JOBS]


def test_a_result_that_cannot_be_written_is_not_lost(storage, request):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)
    with pytest.raises(UserError, match="No space left"):
        work(board, result, quiet, full_disk, quiet)
    assert list(board.standing().values()) == ["waiting"]


def test_a_job_whose_run_folder_is_held_is_left_to_others(storage, request, tmp_path):
    board = Board.open(storage, JOBS, study_name=request.node.name)
    tried = []

    def measure(job):
        tried.append(job)
        with locked(tmp_path / job.name):
            return result(job)

    with locked(tmp_path / JOBS[0].name):
        assert [one["key"] for one in do(board, measure)] == [job.key for job in JOBS[1:]]
    assert tried == JOBS
    assert board.standing()[JOBS[0].key] == "waiting"
    assert len(do(board, measure)) == 1


def test_the_result_of_a_worker_taken_for_a_killed_one_is_kept_and_its_job_done_once(storage, request):
    board = Board.open(storage, JOBS[:1], study_name=request.node.name)
    job = JOBS[0]

    kept = []

    def slow(job):
        assert not kept
        (trial,) = board._trials()[job.key]
        assert board._release(trial._trial_id, job.key)  # as another worker does after a while without a beat
        return result(job)

    assert work(board, slow, quiet, kept.append, quiet)
    other = Board.open(storage, JOBS[:1], study_name=request.node.name)
    assert other.results() == {job.key: kept[0]}
    assert other.standing() == {job.key: "done"}
    assert other.take() is None


@pytest.mark.parametrize("where", ["/dev/full", "/dev/zero", "folder", "notes.txt", "half.txt"])
def test_what_is_no_journal_is_refused_and_left_as_it_is(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name, text in (("notes.txt", "dear diary\n"), ("half.txt", '{"op')):
        Path(name).write_text(text + "other words")
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.txt")}
    with pytest.raises(UserError, match=f"cannot use the storage {where}: "):
        Board.open(where, JOBS)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.txt")} == before
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize("wrong", [b'{"op_code": 5, "work', b"\x00\xff\x00", b""])
def test_a_journal_that_is_damaged_in_the_middle_says_where_and_what_to_do(wrong, tmp_path):
    journal = tmp_path / "sweep.journal"
    Board.open(str(journal), JOBS)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], wrong + b"\n", *lines[3:]]))
    before = journal.read_bytes()
    with pytest.raises(
        UserError, match=r"sweep\.journal: its line 3 is damaged: name a new storage; stored results are"
    ):
        Board.open(str(journal), JOBS)
    assert journal.read_bytes() == before


def test_a_storage_without_the_study_names_itself(tmp_path, monkeypatch):
    def fail(**_):
        raise StorageInternalError("the server is gone\nand more")

    monkeypatch.setattr(sweep.optuna, "create_study", fail)
    with pytest.raises(UserError, match=r"^cannot use the storage \S+/x: the server is gone$"):
        Board.open(str(tmp_path / "x"), JOBS)


def test_a_storage_that_breaks_while_jobs_are_done_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "PAUSES", (0.0,))
    journal = tmp_path / "sweep.journal"
    board = Board.open(str(journal), JOBS)

    def keep(one):
        journal.unlink()
        journal.mkdir()

    with pytest.raises(UserError, match=r"^cannot use the storage \S+sweep\.journal: Is a directory$"):
        work(board, result, quiet, keep, quiet)


def test_a_storage_that_fails_for_a_moment_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "PAUSES", (0.0, 0.0))
    board = Board.open(str(tmp_path / "sweep.journal"), JOBS[:1])
    real, failures = board.study.get_trials, [OSError(5, "hiccup"), StorageInternalError("hiccup")]

    def get_trials(**settings):
        if failures:
            raise failures.pop()
        return real(**settings)

    monkeypatch.setattr(board.study, "get_trials", get_trials)
    assert len(do(board)) == 1
    assert not failures


def test_a_full_disk_under_the_journal_is_named_and_leaves_no_half_record(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "PAUSES", ())
    journal = tmp_path / "sweep.journal"
    board = Board.open(str(journal), JOBS[:1])
    trial, job = board.take()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot use the storage \S+sweep\.journal: File too large"):
            board.finish(trial, result(job))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not journal.read_bytes().endswith(b"\n")
    board.finish(trial, result(job))  # there is room again
    assert Board.open(str(journal), JOBS[:1]).results() == {job.key: result(job)}
