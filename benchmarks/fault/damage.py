"""Damaged and copied files: each scenario yields once for every fault, after checking that nothing is lost."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fault.process import LostError, Process, command, wait_for
from fault.runs import EVALUATION, RNG, copied, finish, fresh, same_result, same_run, same_weights, snapshot, whole


def damage() -> Iterator[str]:
    """Flip a bit, cut off, empty or delete every file of a run folder: refused with nothing changed, or harmless."""
    template = copied("stable")
    names = sorted(snapshot(template / "run"))
    for name in names:
        for kind in ("flip", "flip", "flip", "cut", "empty", "delete"):
            folder = copied("stable")
            path = folder / "run" / name
            content = path.read_bytes()
            if kind == "flip":
                place = RNG.randrange(len(content))
                path.write_bytes(
                    content[:place] + bytes([content[place] ^ 1 << RNG.randrange(8)]) + content[place + 1 :]
                )
            elif kind == "delete":
                path.unlink()
            else:
                path.write_bytes(content[: RNG.randrange(len(content)) if kind == "cut" else 0])
            weights = {key: value for key, value in snapshot(folder / "run").items() if key.startswith("step-")}
            done = command("train", "--resume", "run", folder=folder).check(0, 2)
            if done.code:
                done.refused()
                after = snapshot(folder / "run")
                if any(after.get(key) != value for key, value in weights.items()):
                    raise LostError(f"{kind} {name}: a checkpoint changed although the run was refused")
                path.write_bytes(content)  # the copy is mended, and the run goes on
                finish(folder, "stable")
                yield f"{kind}: refused in one line"
            elif name == "config.json" and kind != "delete":
                raise LostError(f"{kind} {name}: other settings were taken")
            elif name.startswith(
                "metrics"
            ):  # measurements that are gone are said to be; the weights do not depend on them
                same_weights(folder / "run", whole("stable"))
                yield f"{kind}: harmless"
            else:
                same_run(folder / "run", whole("stable"))
                yield f"{kind}: harmless"


def damaged_results() -> Iterator[str]:
    """Flip a bit of an interrupted evaluation: the sizes are evaluated again, or those kept are the right ones."""
    model = whole("stable")
    words = ("evaluate", str(model), *EVALUATION, "--output")
    expected = fresh("expected") / "result.json"
    command(*words, expected, folder=expected.parent).check(0)
    template = fresh("partial")
    process = Process((*words[:-1], "--output", "result.json"), template)
    wait_for((template / "result.json").exists)
    process.signal(signal.SIGKILL)
    process.wait()
    content = (template / "result.json").read_bytes()
    for _ in range(10):
        folder = fresh("damaged")
        folder.mkdir()
        place = RNG.randrange(len(content))
        changed = content[:place] + bytes([content[place] ^ 1 << RNG.randrange(8)]) + content[place + 1 :]
        (folder / "result.json").write_bytes(changed)
        command(*words, "result.json", folder=folder).check(0)
        same_result(folder / "result.json", expected)
        yield "evaluated again, or harmless"


def with_folders(run: Path) -> None:
    """Put folders in place of pointers, as cp -rL does to links."""
    for name in ("last", "best"):
        step = (run / name).read_text().strip()
        (run / name).unlink()
        shutil.copytree(run / step, run / name)


def with_links(run: Path) -> None:
    """Put links in place of pointers, as earlier versions had."""
    for name in ("last", "best"):
        step = (run / name).read_text().strip()
        (run / name).unlink()
        (run / name).symlink_to(step)


def copies() -> Iterator[str]:
    """Run folders as copies leave them: all are resumed, and end as if they had never been copied."""

    def only_pointers(run: Path) -> None:
        with_folders(run)
        for step in run.glob("step-*"):
            shutil.rmtree(step)

    def without_pointers(run: Path) -> None:
        for name in ("last", "best"):
            (run / name).unlink()

    def dangling(run: Path) -> None:
        for name in ("last", "best"):
            (run / name).unlink()
            (run / name).symlink_to("step-99999999")

    def without_hidden(run: Path) -> None:
        for path in run.rglob(".*"):
            path.unlink()

    def zipped(run: Path) -> None:
        archive = shutil.make_archive(str(run.parent / "archive"), "zip", run)
        shutil.rmtree(run)
        shutil.unpack_archive(archive, run)

    def linked_then_dereferenced(run: Path) -> None:
        with_links(run)
        subprocess.run(["cp", "-rL", run, run.with_name("other")], check=True)
        shutil.rmtree(run)
        run.with_name("other").rename(run)

    def leftovers(run: Path) -> None:
        (run / ".step-00000099.part").mkdir()
        (run / ".step-00000099.part" / "model.safetensors").write_bytes(b"half")
        (run / ".last.abc.part").write_text("step-")

    def without_events(run: Path) -> None:
        shutil.rmtree(run / "events")

    def named_elsewhere(run: Path) -> None:
        (run / "last").write_text("../../../etc\n")

    changes = (
        with_folders, with_links, only_pointers, without_pointers, dangling, without_hidden, zipped,
        linked_then_dereferenced, leftovers, without_events, named_elsewhere,
    )  # fmt: skip
    for change in changes:
        for method in ("stable", "corrected"):
            folder = copied(method)
            change(folder / "run")
            finish(folder, method)
            yield change.__name__.replace("_", " ")
