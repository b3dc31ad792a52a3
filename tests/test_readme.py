"""Every command and example of the README runs, as written."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
    if line.startswith("latentloop ")
]


def test_the_readme_has_commands():
    assert len(COMMANDS) >= 6


def test_readme_commands_run_in_their_order(tmp_path):
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    for command in COMMANDS:
        command += " --steps 2" if "--preset laptop" in command else ""
        done = subprocess.run(command, shell=True, cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout or "wrote" in done.stderr or "drew" in done.stderr or "steps in" in done.stderr, command


def test_readme_examples_run():
    for example in re.findall(r"```python\n(.*?)```", README, re.S):
        exec(compile(example, "README", "exec"), {})


def test_examples_run():
    for example in sorted((ROOT / "examples").glob("*.py")):
        done = subprocess.run([sys.executable, example], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_file_map_names_every_file():
    source = ROOT / "src" / "latentloop"
    for path in source.rglob("*.py"):
        name = str(path.relative_to(source))
        assert path.name == "__init__.py" or f"`{name}`" in README, f"README.md does not say what {name} holds"


def test_make_and_ci_run_the_same_tests():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "pytest" in (ROOT / "Makefile").read_text()
