"""Progress bars with the remaining time, on a terminal and in a notebook. Elsewhere nothing is shown."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any, TypeVar

from hooks.state import default_process_state

with default_process_state():  # importing rich draws from Python's generator
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Element = TypeVar("Element")
AnyBar = TypeVar("AnyBar", bound="_Bar")  # not `Self`, which the shape checker cannot read
_shown: ContextVar[bool] = ContextVar("shown", default=True)
_outermost: ContextVar["_Bar | None"] = ContextVar("outermost", default=None)


@contextmanager
def progress(shown: bool) -> Iterator[None]:
    """Show the progress of verbs in a `with` block, or do not: `with progress(False): ...`.

    By default, verbs show a bar with the remaining time on a terminal and in a notebook, and nothing where the output
    is a file or a pipe, nor in parallel processes.

    Args:
        shown: Whether to show bars.
    """
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


def say(text: str) -> None:
    """Print a line, wherever the output goes; not in parallel processes, nor where `progress` is off."""
    if _shown.get():
        Console(highlight=False, soft_wrap=True).print(text, markup=False)


class _Bar:
    """One progress bar. Use as a context manager; bars inside another one are lines below it."""

    counts = True
    """Whether an interrupt says how far the count was."""

    def __init__(self, name: str, total: int | None):
        self.name = name
        self.total = total
        self.completed = 0

    def __enter__(self: AnyBar) -> AnyBar:
        outer = _outermost.get()
        self.outer: _Bar = outer or self
        # The outermost bar has the display, to which bars inside it add lines
        if outer is None:
            console = Console(highlight=False, soft_wrap=True)
            name_column = TextColumn("{task.description}", markup=False)
            note_column = TextColumn("{task.fields[note]}", markup=False)
            columns = (name_column, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), note_column)
            self.bar = Progress(*columns, console=console)
            self.notebook = None
            self.on_terminal = _shown.get() and console.is_terminal
            self.set = _outermost.set(self)
            if self.on_terminal:
                self.bar.start()
            elif _shown.get() and console.is_jupyter:
                from IPython.display import display

                self.notebook: Any = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)
        self.task = self.outer.bar.add_task(self.name, total=self.total, note="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.outer is not self:
            self.outer.bar.remove_task(self.task)
            return
        # One note says how far the whole was; bars inside it add none
        if isinstance(error, KeyboardInterrupt) and self.counts:
            error.add_note(f"interrupted at {self.completed} of {self.total} ({self.name})")
        _outermost.reset(self.set)
        if self.on_terminal:
            self.bar.stop()

    def show(self, completed: int, note: str) -> None:
        """Show how much is completed, with a note."""
        self.completed = completed
        self.outer.bar.update(self.task, completed=completed, total=self.total, note=note)
        if self.outer.notebook is not None:
            self.outer.notebook.update(_in_notebook(self.outer.bar), raw=True)


class TrainingProgress(_Bar):
    """Progress, remaining time and accuracy of one training run: call it with each metrics record."""

    counts = False  # in evaluations: the training loop knows the step

    def __init__(self, name: str = "training"):
        super().__init__(name, None)

    def __call__(self, record: dict[str, Any]) -> None:
        steps = record["steps_done"]
        self.total = record["total"]
        accuracy = " ".join(f"{value:.2f}" for value in record["accuracy"])
        remaining = _remaining_time(record["seconds"], steps, self.total)
        self.show(steps, ", ".join(filter(None, [remaining, f"accuracy {accuracy}"])))


class Count(_Bar):
    """The number of items done out of a total, with the remaining time. Call `advance` after each item.

    Args:
        name: What is counted.
        total: Number of items.
        work: Work of all items together in any unit, if they differ in length; default: 1 each.
    """

    def __init__(self, name: str, total: int, *, work: float | None = None):
        super().__init__(name, total)
        self.n_items = total
        self.total_work = float(total) if work is None else work
        self.completed_work = 0.0
        self.started = time.monotonic()

    def advance(self, text: str = "", *, work: float = 1.0) -> None:
        """Count one more item of this much work; print `text`, if any, as a line, wherever the output goes."""
        self.completed_work += work
        remaining = ""
        if self.completed + 1 < self.n_items:
            seconds = time.monotonic() - self.started
            remaining = _remaining_time(seconds, self.completed_work, self.total_work)
        self.show(self.completed + 1, remaining)
        if text and self.outer.on_terminal:
            self.outer.bar.console.print(f"  {text}", markup=False)
        elif text:
            progress_text = ", ".join(filter(None, [f"{self.completed} of {self.total}", remaining]))
            self.outer.bar.console.print(f"  {text} ({progress_text})", markup=False)


def counted(name: str, items: Iterable[Element], *, total: int) -> Iterator[Element]:
    """Items one by one, with a `Count` of them.

    Args:
        name: What is counted.
        items: Items to pass on.
        total: Their number, at most.
    """
    with Count(name, total) as count:
        for item in items:
            yield item
            count.advance()


def _remaining_time(seconds: float, completed: int | float, total: int | float) -> str:
    """The remaining time as text: seconds, minutes or hours; empty at the start and at the end."""
    if not 0 < completed < total:
        return ""
    remaining = seconds * (total - completed) / completed
    if remaining <= 90:
        return f"about {remaining:.0f} s to go"
    if remaining < 5400:
        return f"about {remaining / 60:.0f} min to go"
    return f"about {remaining / 3600:.1f} h to go"


def _in_notebook(bar: Progress) -> dict[str, str]:
    """All bars of a display as HTML and as text."""
    rows = []
    lines = []
    for task in bar.tasks:
        count = f"{task.description} {task.completed:.0f} of {task.total or '?'}"
        note = task.fields["note"]
        rows.append(
            f'<div><progress value="{task.completed:.0f}" max="{task.total or 1}" aria-label="{escape(count)}">'
            f"</progress> {escape(count)} {escape(note)}</div>"
        )
        lines.append(f"{count} {note}".rstrip())
    return {"text/html": "".join(rows), "text/plain": "\n".join(lines)}
