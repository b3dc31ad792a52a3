"""Ctrl-C and SIGTERM during training: finish the step, save, and stop."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console


class StopSignals:
    """Within this context, Ctrl-C or SIGTERM (which clusters send) asks the loop to stop; Ctrl-C again breaks off.

    Python delivers signals to the main thread alone: training in another thread leaves them as they are.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as shells set it for jobs in the background
                    self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            self.console.print("finishing this step, then saving (Ctrl-C again to give up)")
        elif number == signal.SIGINT:  # a second SIGTERM often comes by way of the parent: no reason to lose work
            raise KeyboardInterrupt
