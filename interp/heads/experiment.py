"""One experiment: what happens to the answers of a model on a sample if parts of it are replaced by something else.

An edit is where and what: heads, an edge or a set of edges, and the intervention that takes their place. All
edits start from one clean pass on each chunk of the sample; what an intervention draws is averaged over its draws.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.clean_pass import Net
from interp.core.activations import TOKENS_PER_CHUNK
from interp.core.processes import in_processes
from interp.core.progress import Count, counted
from interp.core.sample import Sample
from interp.heads.interventions import HeadIntervention, Intervention, References
from interp.tasks.base import Batch, Score

Measure = Literal["right", "loss"]
"""What is summed over the answers of an outcome: right answers, or the task's loss."""
MOST_KEPT = 2**26
"""Most activations of clean runs that are kept: a quarter of a gigabyte in single precision."""
CleanRun = tuple[slice, Batch, Any]
"""Rows of a chunk, the chunk, and the engine with its clean pass."""


@dataclass(frozen=True)
class Edit:
    """Parts of a model, and what takes the place of what they write."""

    where: Any
    """What the engine replaces together: a tuple of (layer, head), or edges."""
    intervention: HeadIntervention


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Answers on every sequence, without and with each edit."""

    total: Float[np.ndarray, "sequence outcome"]
    """Answers scored."""
    clean: Float[np.ndarray, "sequence measure outcome"]
    after: Float[np.ndarray, "sequence edit measure outcome"]
    agree: Float[np.ndarray, "sequence edit"]
    """Answers that are those of the unchanged model; 0 if they were not compared."""
    answers: Float[np.ndarray, " sequence"]
    """Answers at all targets."""

    @property
    def lost(self) -> Float[np.ndarray, "sequence edit measure outcome"]:
        """What each edit takes away."""
        return self.clean[:, None] - self.after


@dataclass(frozen=True, eq=False)
class Experiment:
    """Edits of one model on one sample, which is run in chunks.

    >>> import interp
    >>> from interp.core.sample import Sample
    >>> from interp.heads.interventions import BUILT_IN
    >>> task = interp.tasks.Lego(n_vars=2)
    >>> sample = Sample.of(task, 32, seed=0, name="guide")
    >>> experiment = Experiment(interp.known_answers.lego_loop(task), sample)
    >>> effects = experiment.run([Edit(((2, 0), (2, 1)), BUILT_IN["zero"])])
    >>> effects.lost[:, 0, 0].sum(0).tolist()  # right answers lost, of each variable
    [0.0, 20.0]
    """

    model: Net
    sample: Sample
    measures: tuple[Measure, ...] = ("right", "loss")
    engine: Any = AblationEngine
    """Class of the engine, whose `each_edit` replaces what `Edit.where` says."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the engine."""
    points: tuple[str, ...] = ()
    """Hook points at which the engine of edges takes new outputs; of heads, none."""
    most_tokens: int = sys.maxsize
    """Largest number of tokens of a chunk, where an engine needs more memory than others."""
    compares_answers: bool = False
    """Whether answers are compared with those of the unchanged model (`Effects.agree`)."""
    keeps_runs: bool = False
    """Whether clean runs are kept for further calls, if all of them are small enough."""

    @cached_property
    def references(self) -> References:
        """What interventions read of other inputs."""
        return References(self.model, self.sample, self.points)

    @property
    def size(self) -> int:
        """Sequences of a chunk."""
        return max(1, min(TOKENS_PER_CHUNK, self.most_tokens) // self.sample.batch.tokens.shape[1])

    def run(self, edits: Sequence[Edit], *, name: str | None = None, n_jobs: int = 1) -> Effects:
        """Answers under each edit.

        Args:
            edits: The edits; those of one intervention share their passes.
            name: Name of the progress, if it is shown.
            n_jobs: Number of processes, each with one torch thread, that share the chunks.
        """
        starts = range(0, len(self.sample), self.size)
        n_jobs = min(n_jobs, len(starts))
        if n_jobs == 1:
            return self._run(edits, self.clean_runs(), name)
        bounds = [starts[index * len(starts) // n_jobs] for index in range(n_jobs)] + [len(self.sample)]
        calls = []
        for index, rows in enumerate(pairwise(bounds)):
            calls.append((_run_in_process, (index, self, edits, rows)))
        with Count(name or "replacing", n_jobs) as count:
            effects_by_call = {}
            for index, effects in in_processes(calls, n_jobs=n_jobs):
                effects_by_call[index] = effects
                count.advance()
        return _joined([effects_by_call[index] for index in range(n_jobs)])

    def clean_runs(self) -> Iterable[CleanRun]:
        """The clean run of every chunk."""
        batch, pos = self.sample.batch.tokens.shape
        cfg = self.model.cfg
        activations_of_token = cfg.n_layers * (3 * cfg.d_model + cfg.n_heads * pos)
        if self.keeps_runs and batch * pos * activations_of_token <= MOST_KEPT:
            return self._kept_runs
        return self.runs_of(0, batch)

    @cached_property
    def _kept_runs(self) -> list[CleanRun]:
        return list(self.runs_of(0, len(self.sample)))

    def runs_of(self, first: int, last: int) -> Iterator[CleanRun]:
        """Clean runs on the sequences from the first to the one before the last."""
        for start in range(first, last, self.size):
            rows = slice(start, min(start + self.size, last))
            chunk = self.sample.batch.select(rows)
            inputs: dict[str, Any] = chunk.model_inputs()
            yield (
                rows,
                chunk,
                self.engine(self.model, chunk.tokens, read_at=chunk.target_positions, **self.options, **inputs),
            )

    @torch.no_grad()
    def _run(self, edits: Sequence[Edit], runs: Iterable[CleanRun], name: str | None = None) -> Effects:
        """Answers under each edit in some clean runs."""
        # Edits of one intervention share its passes
        edits_of: dict[HeadIntervention, list[int]] = {}
        for index, edit in enumerate(edits):
            edits_of.setdefault(edit.intervention, []).append(index)
        shown = counted(name, runs, total=-(-len(self.sample) // self.size)) if name else runs
        return _joined([self._on_chunk(edits, edits_of, rows, chunk, engine) for rows, chunk, engine in shown])

    def _on_chunk(
        self, edits: Sequence[Edit], edits_of: dict[HeadIntervention, list[int]], rows: slice, chunk: Batch, engine: Any
    ) -> Effects:
        """Answers under each edit on one chunk."""
        task = self.sample.task
        score = task.score(engine.logits, chunk)
        clean = self._measures(score)
        answers = task.answers(engine.logits) if self.compares_answers else None
        after = torch.zeros(len(chunk), len(edits), *clean.shape[1:], dtype=clean.dtype)
        agree = torch.zeros(len(chunk), len(edits), dtype=clean.dtype)
        for intervention, indices in edits_of.items():
            n_draws = self.sample.n_draws if intervention.draws else 1
            for draw in range(n_draws):
                instead = self.instead(intervention, engine, rows, draw)
                for index, logits in engine.each_edit([edits[index].where for index in indices], instead):
                    after[:, indices[index]] += self._measures(task.score(logits, chunk)) / n_draws
                    if answers is not None:
                        is_same = (task.answers(logits) == answers) & chunk.present
                        agree[:, indices[index]] += is_same.sum(1).cpu() / n_draws
        return Effects(
            total=score.total.double().cpu().numpy(),
            clean=clean.numpy(),
            after=after.numpy(),
            agree=agree.numpy(),
            answers=chunk.present.sum(1).double().cpu().numpy(),
        )

    def instead(self, intervention: HeadIntervention, engine: Any, rows: slice, draw: int) -> Any:
        """What the engine puts in the place of what heads write, or of what is written at `points`."""
        if not self.points:
            return intervention.replacement(self.references, rows, draw)
        assert isinstance(intervention, Intervention)  # verbs with points take no other
        new_output = partial(intervention.new_output_at, references=self.references, rows=rows, draw=draw)
        # Other inputs are run now, and not inside a pass with edits
        new_output(self.points[0], engine.cache[self.points[0]])
        return new_output

    def _measures(self, score: Score) -> Float[Tensor, "batch measure outcome"]:
        return torch.stack([getattr(score, name).double().cpu() for name in self.measures], 1)


def _joined(parts: Sequence[Effects]) -> Effects:
    """Effects on the sequences of some parts after the others."""
    names = ("total", "clean", "after", "agree", "answers")
    return Effects(**{name: np.concatenate([getattr(effects, name) for effects in parts]) for name in names})


def _run_in_process(
    index: int, experiment: Experiment, edits: Sequence[Edit], rows: tuple[int, int]
) -> tuple[int, Effects]:
    """The index of a call, and the effects on some sequences, in a process that has one torch thread."""
    torch.set_num_threads(1)
    return index, experiment._run(edits, experiment.runs_of(*rows))
