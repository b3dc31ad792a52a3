"""Rules of the house that a machine can keep."""

import ast
import subprocess
import sys
from pathlib import Path

import latentloop

ROOT = Path(latentloop.__file__).parent
ORDER = (
    ["errors", "schema", "methods", "operations", "families", "halting"], ["files", "provenance", "config", "presets"],
    ["task"], ["tokens"], ["model"], ["train"],
    ["evaluate"], ["experiments"], ["interpret"], ["report"], ["explorer"], ["commands"], ["cli", "__init__", "__main__"],
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.append(node.module)
    return found


def test_data_flows_one_way():
    checked = 0
    for path in ROOT.rglob("*.py"):
        part = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for module in _imports(path):
            if module.startswith("latentloop."):
                checked += 1
                assert RANK[module.split(".")[1]] <= RANK[part], f"{path} must not import {module}"
    assert checked > 30


def test_the_task_needs_no_torch():
    modules = sorted(f"latentloop.task.{path.stem}" for path in (ROOT / "task").glob("*.py") if path.stem != "__init__")
    code = f"import sys, {', '.join(modules)}, latentloop.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_module_can_show_itself():
    files = (path for path in ROOT.rglob("*.py") if path.stem not in ("cli", "__main__"))
    shown = [path for path in files if '__name__ == "__main__"' in path.read_text()]
    assert len(shown) >= 5
    for path in shown:
        module = ".".join(["latentloop", *path.relative_to(ROOT).with_suffix("").parts])
        done = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
