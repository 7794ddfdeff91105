"""Demo: a page that begins with a hand-written model whose heads look alike, then trains a model and audits it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import interp.known_answers
from hooks.files import make_folder
from interp.auditing.audit import audit
from interp.auditing.contrast import Contrast, contrast_of, points_lost
from interp.auditing.records import HeadVerdict, InterventionCost
from interp.auditing.result import AuditResult
from interp.auditing.sentences import name_of
from interp.auditing.show import show_heads
from interp.core.inputs import all_inputs_text
from interp.core.page_identity import page_identity, quantity
from interp.core.progress import Count
from interp.heads.ablate import ablate_heads
from interp.heads.classify import classify_heads
from interp.heads.kinds import meaning_of
from interp.heads.show import AttentionPage, show_attention
from interp.probing.probe import probe
from interp.reporting.report import Opening, Section, report, report_run
from interp.reporting.sections import cards_section, contrast_section
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.configs import config_for
from interp.training.run import TrainingRun
from interp.training.settings import TrainSettings

TASK = Lego(n_vars=3, alphabet="abcde")
"""Five letters: few enough sentences for an audit of every held-out one. Only a loss at the threshold stays open."""
CONFIG = config_for(TASK, n_layers=3, n_heads=4, d_model=32)
SETTINGS = TrainSettings(steps=600, learning_rate=2e-3, association="query_key", eval_every=150, n_eval=300)
"""A start with W_K = W_Q, and no mimicking: no head is taught a pattern."""
SHIPPED = Path(__file__).parent / "demo_model"
"""Folder of the training run that is shipped with the package: seed 0 of the demo."""
PAGE = "report.html"
TITLE, TRAINED = "A pattern is not a mechanism", "And in a model that was trained"
N_SETS, N_TEST = 500, 4000
"""Sequences of the ablation of sets of heads, and of the accuracies."""
N_HAND_WRITTEN = 128
"""Sequences of the audit of the hand-written model; what its heads cost is measured on all."""


@dataclass(frozen=True, kw_only=True)
class HandWrittenModel:
    """A model whose algorithm is known, with the verdicts on some of its heads or all."""

    rows: tuple[tuple[HeadVerdict, ...], ...]
    """The heads of each kind, from the first layer to the last; their costs are exact."""
    patterns: AttentionPage
    """The pattern of every head on a sentence."""
    threshold: Float[np.ndarray, " outcome"]
    """Loss of accuracy that counts on each variable of the chain."""
    contrast: Contrast
    """Two heads that look alike, of which the model needs one."""
    n: int
    """Number of all inputs, on which costs were measured."""


def hand_written_models() -> Iterator[HandWrittenModel]:
    """Audit a model with hand-written weights, which has two heads in each layer and needs one of them.

    The heads of each kind are audited together, a sixteenth of the sets of heads of an audit of them all: the model
    comes with the verdicts on its heads of the first kind, among which is the contrast, and then with all.
    """
    model = interp.known_answers.lego_loop(TASK)
    patterns = show_attention(model, TASK, seed=0)
    rows: list[tuple[HeadVerdict, ...]] = []
    for index in range(model.cfg.n_heads):
        heads = [(layer, index) for layer in range(model.cfg.n_layers)]
        removed = ablate_heads(model, TASK, heads={name_of(head): [head] for head in heads}, method="mean", n="all")
        audited = audit(model, TASK, heads=heads, n=N_HAND_WRITTEN)
        costs = dict(zip(removed.heads, removed.drop.value.tolist(), strict=True))
        rows.append(tuple(_with_cost(head, tuple(costs[(head.place,)]), removed.n) for head in audited.heads))
        contrast = contrast_of(rows[0], outcomes=removed.targets, threshold=audited.threshold)
        if contrast is None:
            raise RuntimeError("the heads of the hand-written model have no contrast: an analysis is broken.")
        losses = [points_lost(head, audited.threshold) for head in (contrast.faithful, contrast.misleading)]
        yield HandWrittenModel(
            rows=tuple(rows),
            patterns=patterns,
            threshold=audited.threshold,
            contrast=replace(contrast, losses=(losses[0], losses[1])),
            n=removed.n,
        )


def _with_cost(head: HeadVerdict, drop: tuple[float, ...], n: int) -> HeadVerdict:
    """A verdict with the exact cost of the head's removal."""
    cost = InterventionCost(drop=drop, low=drop, high=drop, n=n, exact=True)
    return replace(head, costs={**head.costs, "mean": cost})


def run_demo(folder: Path, *, seed: int = 0, fresh: bool = False) -> Path:
    """Run the demo; a model already trained in the folder is reused.

    Args:
        folder: Folder for the model and the report.
        seed: Seed of everything random in the trained model.
        fresh: Train again.

    Returns:
        Path of the report.
    """
    opening = _write_first_page(folder)
    print(f"Training a transformer to follow chains of {TASK.n_vars} clauses, such as b=-a;a=+1;c=+b; ...")
    train_to_disk({folder / "model": demo_spec(seed)}, fresh=fresh)
    return _analyse(folder / "model", folder, opening, seed=seed)


def run_quick_demo(folder: Path, *, seed: int = 0) -> Path:
    """Analyse the model that is shipped with the package; nothing is trained.

    Args:
        folder: Folder for results and report.
        seed: Seed of the analyses.

    Returns:
        Path of the report.
    """
    opening = _write_first_page(folder)
    manifest = TrainingRun.load(SHIPPED).manifest
    print(f"A transformer that follows chains of {TASK.n_vars} clauses, trained with:\n  {manifest['command']}")
    return _analyse(SHIPPED, folder, opening, seed=seed)


def demo_spec(seed: int) -> ModelSpec:
    """The model that the demo trains."""
    return ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=seed)


def _write_first_page(folder: Path) -> Opening:
    """Write the page about the hand-written model before anything is trained, and say where it is once it begins."""
    torch.set_num_threads(1)
    make_folder(folder)
    waiting = Section(
        title=TRAINED,
        text="Its heads will be here within a minute: this page is written again after each analysis. Reload it.",
    )
    openings = []
    for model in hand_written_models():
        openings.append(opening_of(model))
        page = report(
            [*openings[-1].sections, waiting],
            folder / PAGE,
            title=TITLE,
            lead=openings[-1].lead,
            identity=page_identity(task=TASK),
        )
        if len(openings) == 1:
            print(f"{TITLE}. {openings[0].lead}\nThe page begins with them: {page}\n")
    return openings[-1]


def opening_of(model: HandWrittenModel) -> Opening:
    """Two heads that look alike, and all heads of the hand-written model once each has a verdict."""
    contrast = model.contrast
    needed, unneeded = name_of(contrast.faithful.place), name_of(contrast.misleading.place)
    lead = (
        f"Heads {needed} and {unneeded} of a hand-written model have the same pattern: without {needed} the model "
        f"loses {contrast.losses[0]} of accuracy, without {unneeded} {contrast.losses[1]}, so {unneeded} is "
        f"{contrast.misleading.verdict}."
    )
    counted = all_inputs_text(model.n)
    sections = [contrast_section(contrast, model.patterns, counted=counted)]
    verdicts = [head.verdict for row in model.rows for head in row]
    if len(verdicts) == len(model.patterns.heads):
        rows = {f"{row[0].label}: each token attends to {meaning_of(row[0].label)}": row for row in model.rows}
        misleading = verdicts.count("misleading")
        sections.append(
            cards_section(
                rows,
                model.patterns,
                threshold=model.threshold,
                title=f"All {len(verdicts)} heads of this model",
                text=f"{misleading} of {len(verdicts)} heads have a clear pattern that the model does not need.",
                counted=f"{counted}. Verdicts: an audit of the heads of each kind, {N_HAND_WRITTEN} sequences",
            )
        )
    return Opening(lead=lead, sections=tuple(sections))


def _analyse(source: Path, folder: Path, opening: Opening, *, seed: int) -> Path:
    """Audit and probe the model of a run, write results and report, and print a summary.

    In one process: a second one imports everything again, which takes longer than probes and classes.
    """
    print("Auditing every head, and probing every layer ...")
    run = TrainingRun.load(source)
    with Count("analyses", 3) as count:
        # The audit, on the page at once
        audited = _audit(run)
        opening = replace(opening, sections=(*opening.sections, trained_section(run, audited)))
        _write_page(run, folder, opening, [audited])
        count.advance()
        # Probes, patterns and sets of heads
        results = {"audit": audited, **_probe_and_classify(run, seed)}
        count.advance()
        for name, result in results.items():
            result.save(folder / f"{name}.json")
        viewer = show_heads(run.model, run.task, audited, probes=results["probes"], seed=seed)
        page, evaluations = _write_page(run, folder, opening, [viewer, *results.values()])
        count.advance()
    print(f"\n{audited.summary()}\n\n{evaluations['model']}\n\n{results['probes']}\n")
    return page


def _write_page(run: TrainingRun, folder: Path, opening: Opening, results: Sequence[Any]) -> tuple[Path, Any]:
    """Write the page with what is known so far; also return the accuracies."""
    return report_run(run, run.task, folder / PAGE, results=results, n_test=N_TEST, title=TITLE, opening=opening)


def trained_section(run: TrainingRun, audited: AuditResult) -> Section:
    """Every head of a trained model as a card, and the number of heads of each verdict."""
    n_misleading = len(audited.of("misleading"))
    return cards_section(
        {"": audited.heads},
        show_attention(run.model, run.task, seed=run.manifest["seed"]),
        threshold=audited.threshold,
        title=TRAINED,
        text=f"{n_misleading} of its {quantity(len(audited.heads), 'head')} {'is' if n_misleading == 1 else 'are'} "
        "misleading.",
        counted=audited.counted(),
    )


def _probe_and_classify(run: TrainingRun, seed: int) -> dict[str, Any]:
    """Probes and patterns of a model, and ablations of the heads of each kind."""
    model, task = run.model, run.task
    patterns = classify_heads(model, task, seed=seed)
    results: dict[str, Any] = {"probes": probe(model, task, verify=True, seed=seed), "heads": patterns}
    heads_by_kind = {kind: patterns.heads(kind) for kind in patterns.kinds}
    heads_by_kind = {kind: heads for kind, heads in heads_by_kind.items() if heads}
    if heads_by_kind:
        results["sets"] = ablate_heads(model, task, heads=heads_by_kind, n=N_SETS, n_random=10, seed=seed)
    return results


def _audit(run: TrainingRun) -> AuditResult:
    """Verdicts on the heads of a model from every held-out sentence, also if its accuracy is at chance."""
    return audit(run.model, run.task, n="all", at_chance=True)
