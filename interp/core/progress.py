"""How far training is: bars in a terminal, a line now and then elsewhere."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

LINES_PER_RUN = 6


class Progress:
    """Shows the metrics of several runs as they grow. Use as a context manager, call with all records so far."""

    def __init__(self, names: Sequence[str]):
        self.console = Console(highlight=False)
        self.shown = dict.fromkeys(names, 0)
        self.bars = RichProgress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[accuracy]}"),
            console=self.console,
        )
        self.tasks = {name: self.bars.add_task(name, total=None, accuracy="") for name in names}

    def __enter__(self) -> "Progress":
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def __call__(self, metrics: Mapping[str, Sequence[dict]]) -> None:
        for name, records in metrics.items():
            if records:
                self._show(name, records[-1])

    def _show(self, name: str, record: dict) -> None:
        done, total = record["steps_done"], record["total"]
        accuracy = "accuracy " + " ".join(f"{value:.2f}" for value in record["accuracy"])
        if self.console.is_terminal:
            self.bars.update(self.tasks[name], completed=done, total=total, accuracy=accuracy)
            return
        part = done * LINES_PER_RUN // total
        if part > self.shown[name]:
            self.shown[name] = part
            self.console.print(f"{name:<8} {done:>6} of {total} steps, {record['seconds']:.0f} s, {accuracy}")
