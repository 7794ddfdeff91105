"""Progress display: a bar in a terminal, occasional lines elsewhere."""

import time
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINES_PER_RUN = 6
"""Lines per training run without a terminal."""
EVERY = 15.0
"""Seconds between lines of a count without a terminal."""
AnyBar = TypeVar("AnyBar", bound="_Bar")  # not `Self`, which the shape checker cannot read


class _Bar:
    """One progress bar, shown only in a terminal. Use as a context manager."""

    def __init__(self, name: str, total: int | None, *columns: ProgressColumn):
        self.name = name
        self.console = Console(highlight=False, soft_wrap=True)
        shared = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*shared, *columns, console=self.console)
        self.task = self.bar.add_task(name, total=total, accuracy="")

    def __enter__(self: AnyBar) -> AnyBar:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()


class TrainingProgress(_Bar):
    """Progress and accuracy of one training run. Pass it to `interp.train` as `on_record`."""

    def __init__(self, name: str):
        super().__init__(f"{name:<8}", None, TextColumn("{task.fields[accuracy]}"))
        self.shown = 0

    def __call__(self, record: dict[str, Any]) -> None:
        done, total = record["steps_done"], record["total"]
        accuracy = "accuracy " + " ".join(f"{value:.2f}" for value in record["accuracy"])
        self.bar.update(self.task, completed=done, total=total, accuracy=accuracy)
        part = done * LINES_PER_RUN // total
        if not self.console.is_terminal and part > self.shown:
            self.shown = part
            self.console.print(f"{self.name} {done:>6} of {total} steps, {record['seconds']:.0f} s, {accuracy}")


class Count(_Bar):
    """The number of items done out of a total, with the remaining time. Call `one` after each item."""

    def __init__(self, name: str, total: int):
        super().__init__(name, total, TextColumn("about"), TimeRemainingColumn(), TextColumn("to go"))
        self.total, self.done = total, 0
        self.started = self.printed = time.monotonic()

    def one(self, text: str = "") -> None:
        """Count one more item; print `text`, if any, as a line."""
        self.done += 1
        self.bar.update(self.task, completed=self.done)
        if text:
            self.console.print(f"  {text}", markup=False)
        now = time.monotonic()
        if not self.console.is_terminal and not text and (self.done == self.total or now - self.printed > EVERY):
            self.printed = now
            self.console.print(f"  {self.name}: {self.done} of {self.total}, {now - self.started:.0f} s", markup=False)
