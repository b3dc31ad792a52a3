"""Open the shipped page in a real Firefox, from disk: it solves, heals, answers why, tells an error, and complains of nothing.

python benchmarks/firefox.py            (needs firefox-esr; half a minute)

Firefox is driven by its own protocol, Marionette: messages are JSON with their length before them. No driver is installed.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explore.html"
PORT = 28281
PATIENCE = 3600
"""Seconds that any step may take: a busy machine is slow, and a wrong page never gets there."""
SETTINGS = {
    "app.update.auto": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.update.enabled": False,
    "marionette.port": PORT,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.dns.disablePrefetch": True,
    "network.prefetch-next": False,
    "toolkit.telemetry.enabled": False,
    "ui.prefersReducedMotion": 1,
}
DONE = "return Boolean(window.latentloop?.problem && !latentloop.computing && latentloop.wanted === undefined)"
COMPLAINTS = (
    "return Services.console.getMessageArray()"
    ".filter((said) => said instanceof Ci.nsIScriptError && /^(file|blob):/.test(said.sourceName))"
    ".map((said) => said.message)"
)


class Firefox:
    """A browser that answers one command at a time."""

    def __init__(self, profile: Path) -> None:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in SETTINGS.items()]
        (profile / "user.js").write_text("".join(lines))
        program = shutil.which("firefox-esr") or shutil.which("firefox")
        if program is None:
            sys.exit("there is no Firefox: apt-get install firefox-esr")
        words = ("--headless", "--marionette", "--remote-allow-system-access", "--profile", profile)
        self.process = subprocess.Popen(
            [program, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.number = 0
        self.line = self._connected()
        self._receive()  # it says who it is
        self.capabilities = self.ask("WebDriver:NewSession")["capabilities"]
        self.ask("WebDriver:SetTimeouts", script=1000 * PATIENCE, pageLoad=1000 * PATIENCE)

    def _connected(self) -> socket.socket:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                return socket.create_connection(("127.0.0.1", PORT), timeout=PATIENCE)
            except OSError:
                time.sleep(0.5)
        sys.exit("Firefox did not start")

    def ask(self, command: str, **parameters: Any) -> Any:
        """Return what a command of WebDriver gives."""
        self.number += 1
        content = json.dumps([0, self.number, command, parameters]).encode()
        self.line.sendall(b"%d:%s" % (len(content), content))
        _, _, error, result = self._receive()
        if error:
            sys.exit(f"{command}: {error['message']}")
        return result

    def _receive(self) -> Any:
        length = b""
        while not length.endswith(b":"):
            length += self.line.recv(1)
        content = b""
        while len(content) < int(length[:-1]):
            content += self.line.recv(int(length[:-1]) - len(content))
        return json.loads(content)

    def run(self, script: str) -> Any:
        """Return what a function's body gives in the page."""
        return self.ask("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def until(self, script: str) -> None:
        """Wait for a condition."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            if time.monotonic() > end:
                sys.exit(f"never true: {script}")
            time.sleep(0.2)

    def quit(self) -> None:
        """Close it, and wait until it has ended."""
        self.ask("Marionette:Quit", flags=["eForceQuit"])
        self.process.wait()


def visit(firefox: Firefox) -> dict[str, Any]:
    """Do what a person does, and return what was seen."""
    seen: dict[str, Any] = {}
    firefox.ask("WebDriver:SetWindowRect", width=1280, height=900)
    firefox.ask("WebDriver:Navigate", url=PAGE.as_uri())
    firefox.until(DONE)
    seen["notice"] = firefox.run("return document.getElementById('notice').textContent")
    firefox.run("latentloop.go(latentloop.last)")
    solved = "return String(latentloop.main.at(latentloop.iteration)) === String(latentloop.truth)"
    seen["solved"] = firefox.run(solved)
    firefox.run("latentloop.select(latentloop.problem.nodes.length - 1)")
    firefox.until("return Boolean(document.querySelector('#why-panel .heads'))")
    seen["why"] = firefox.run("return document.querySelector('#why-panel .finding').textContent")
    firefox.run("document.querySelector('[data-share=\"1\"]').click()")
    firefox.until(DONE)
    firefox.run("latentloop.go(latentloop.last)")
    firefox.until(solved)
    seen["repair"] = firefox.run("return document.getElementById('repair').textContent")
    firefox.run(
        "const box = document.getElementById('problem'); box.value = '3 = x1\\nx1 ? x1 = x2';"
        "box.dispatchEvent(new Event('input'))"
    )
    firefox.until("return !document.getElementById('problem-error').hidden")
    seen["error"] = firefox.run("return document.getElementById('problem-error').textContent")
    firefox.ask("Marionette:SetContext", value="chrome")
    seen["complaints"] = firefox.run(COMPLAINTS)
    return seen


def main() -> None:
    """Open the page, and say what it did."""
    with tempfile.TemporaryDirectory() as profile:
        firefox = Firefox(Path(profile))
        version = firefox.capabilities["browserVersion"]
        try:
            seen = visit(firefox)
        finally:
            firefox.quit()
    print(f"Firefox {version}", json.dumps(seen, indent=2))
    good = (
        seen["solved"]
        and seen["why"] == "Right, and for the right reason."
        and "Healed after" in seen["repair"]
        and seen["error"].startswith("Line 2: ")
        and not seen["notice"]
        and not seen["complaints"]
    )
    sys.exit(0 if good else "the page does not work in Firefox")


if __name__ == "__main__":
    main()
