"""Ctrl-C during training: finish the step, save, and stop."""

import signal
from types import FrameType

from rich.console import Console


class StopSignals:
    """The first Ctrl-C asks the loop to finish its step and save; the second one breaks off."""

    def __init__(self, console: Console) -> None:
        self.asked, self.console = False, console
        self.before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.console.print("finishing this step, then saving (Ctrl-C again to give up)")

    def restore(self) -> None:
        """Let Ctrl-C do what it did before."""
        signal.signal(signal.SIGINT, self.before)
