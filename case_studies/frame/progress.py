"""How far is a study? A bar in a terminal, a line now and then elsewhere."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

EVERY = 15.0
"""Seconds between lines where there is no terminal."""


class Count:
    """How many of a number of things are done. Use as a context manager, call `one` as each is done."""

    def __init__(self, what: str, total: int):
        self.what, self.total, self.done = what, total, 0
        self.console = Console(highlight=False, soft_wrap=True)
        self.started = self.printed = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("about"),
            TimeRemainingColumn(),
            TextColumn("to go"),
            console=self.console,
        )

    def __enter__(self) -> "Count":
        self.task = self.bar.add_task(self.what, total=self.total)
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def one(self, text: str = "") -> None:
        """One more is done; `text` is a line worth showing by itself."""
        self.done += 1
        self.bar.update(self.task, completed=self.done)
        if text:
            self.console.print(f"  {text}", markup=False)
        now = time.monotonic()
        if not self.console.is_terminal and not text and (self.done == self.total or now - self.printed > EVERY):
            self.printed = now
            self.console.print(f"  {self.what}: {self.done} of {self.total}, {now - self.started:.0f} s", markup=False)
