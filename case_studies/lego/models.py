"""Models of the LEGO study: arms of a few seeds each, by size.

`classical` arms are trained on every variable; `plain`, `spare` and `long` arms are trained on the first few and tested
on the rest: `plain` on one chain length, as in the paper; `spare` the same with enough layers for every variable;
`long` on longer chains with a curriculum, the paper's "diverse lengths". Small models start from mimicking; at size
`paper` they start from random weights, as in the paper.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from case_studies.frame.claims import Preregistration
from case_studies.frame.evidence import Size
from case_studies.recipes.lego_models import chain_models
from case_studies.recipes.seeds import more_seeds, with_seeds
from hooks.model.architectures import Config
from interp.sweeps.spec import ModelSpec, seeded
from interp.tasks import Lego, Text, ready_made
from interp.tasks.lego.task import SentenceFormat
from interp.training.configs import config_for
from interp.training.settings import Association, Mimicking, TrainSettings

FIRST_MODELS = Preregistration(
    "after first models",
    "single models, while settings were chosen, whose figures were not kept; the first judged models were in training.",
)
"""When most rules of the study were fixed."""
EXCLUDED_LATER = Preregistration(
    "after a result", "the bar was fixed after first models; after a result models below 0.9 were excluded."
)
MORE_SEEDS = "Seeds were added after a result."


def later(preregistration: Preregistration, change: str, *, looks: int = 1) -> Preregistration:
    """The same rule, what was changed about its models after a result, and how often that was."""
    return Preregistration(preregistration.when, f"{preregistration.prior_knowledge} {change}", looks=looks)


GROUPS = ("S3", "Z5")
"""Task 2 of the paper, and a group that it did not use."""
SYMBOLS = (("+", "("), ("-", ")"), ("1", "_"), ("=", ">"), (";", "#"))
"""Tokens that replace the usual ones: tokens of Python sources, also in BERT's vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Task, depth, training and number of seeds of an arm."""

    n_vars: int
    supervised: tuple[int, ...] | None = None
    """Variables that count in the loss; if None, all."""
    layers: int
    depth_range: tuple[int, int] | None = None
    """Stochastic depth: fewest and most layers; the latter is the model's depth."""
    steps: int = 0
    tied_longer: int = 1
    """Factor of the steps of tied models."""
    curriculum: tuple[tuple[int, int], ...] = ()
    sentence_format: SentenceFormat = "compact"
    seeds: int

    def task(self, group: str = "Z2") -> Lego:
        """The chains of this arm, over a group."""
        return Lego(
            n_vars=self.n_vars,
            supervised=self.supervised,
            group=ready_made(group),
            sentence_format=self.sentence_format,
        )


TO_EIGHT = ((2, 80), (3, 270), (4, 350), (5, 400), (6, 600), (8, 900))
TO_TWELVE = ((2, 500), (4, 1500), (6, 4000), (8, 4000), (10, 4000), (12, 10_000))
FIRST_FOUR, FIRST_SIX = tuple(range(4)), tuple(range(6))
FIRST_FIVE = tuple(range(5))
TWELVE = Arm(sentence_format="paper", n_vars=12, layers=12, steps=24_000, seeds=3)
"""The paper's chains and training."""
ARMS: dict[Size, dict[str, Arm]] = {
    "quick": {
        "classical": Arm(n_vars=4, layers=6, steps=500, seeds=2),
        "start": Arm(n_vars=4, layers=6, steps=500, seeds=2),
        "shortcut": Arm(n_vars=4, supervised=(0, 1, 3), layers=6, steps=500, seeds=2),
    },
    "standard": {
        "classical": Arm(n_vars=6, layers=8, steps=1600, tied_longer=2, seeds=3),
        "plain": Arm(n_vars=6, supervised=FIRST_FOUR, layers=8, steps=1400, seeds=8),
        "spare": Arm(n_vars=6, supervised=FIRST_FOUR, layers=12, steps=1400, seeds=12),
        "long": Arm(n_vars=8, supervised=FIRST_SIX, layers=11, curriculum=TO_EIGHT, seeds=8),
        "stochastic": Arm(n_vars=8, supervised=FIRST_SIX, layers=14, depth_range=(8, 14), curriculum=TO_EIGHT, seeds=8),
        "last": Arm(n_vars=8, supervised=(*FIRST_FIVE, 7), layers=11, curriculum=TO_EIGHT, seeds=12),
        "first": Arm(n_vars=8, supervised=FIRST_SIX, layers=11, curriculum=TO_EIGHT, seeds=8),
        "start": Arm(n_vars=4, layers=6, steps=500, sentence_format="paper", seeds=3),
        "shortcut": Arm(n_vars=5, supervised=(0, 1, 4), layers=6, steps=1000, sentence_format="paper", seeds=3),
        "S3": Arm(n_vars=4, layers=6, curriculum=((2, 400), (3, 1000), (4, 2600)), seeds=3),
        "Z5": Arm(n_vars=4, layers=6, curriculum=((2, 200), (3, 400), (4, 900)), seeds=3),
    },
    "paper": {
        "classical": replace(TWELVE, seeds=1),
        "plain": replace(TWELVE, supervised=FIRST_SIX, seeds=5),
        "spare": replace(TWELVE, supervised=FIRST_SIX, seeds=5),
        "long": replace(TWELVE, supervised=FIRST_SIX, curriculum=TO_TWELVE, seeds=5),
        "stochastic": replace(TWELVE, supervised=FIRST_SIX, depth_range=(6, 12), curriculum=TO_TWELVE, seeds=5),
        "start": TWELVE,
        "shortcut": replace(TWELVE, supervised=(*FIRST_FIVE, 11)),
        "last": replace(TWELVE, supervised=(*FIRST_FIVE, 11)),
        "first": replace(TWELVE, supervised=FIRST_SIX),
        "S3": TWELVE,
        "Z5": TWELVE,
    },
}
BERT_VARIABLE, BERT_ON_HUB = "UNMYOPIC_BERT", "bert-base-uncased"
"""Environment variable with the folder of a pretrained BERT; default: the model on the hub."""
TEXT_STEPS = 2500
"""Steps of pretraining on the sources of Python's standard library."""
TEXT_SEEDS = 3
UNTAUGHT_SEEDS: dict[Size, int] = {"quick": 0, "standard": 6, "paper": 20}
FURTHER: dict[str, int] = {
    **dict.fromkeys(("shortcut-random", "shortcut-mimic"), 6),
    "untaught-untied": 10,
    **dict.fromkeys(("long-tied", "long-stochastic"), 12),
}
"""Models at size standard of groups with more seeds; at other sizes these are the ordinary groups."""


def groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Every group of models at a size; a group that a size does not train is empty."""
    plain: Association = "none" if size == "paper" else "mimic"
    groups: dict[str, list[ModelSpec]] = {}
    # Untied and tied models of each arm
    for name, tied in (("untied", False), ("tied", True)):
        for arm in ("classical", "plain", "spare", "long"):
            skipped = size == "quick" and tied
            groups[f"{arm}-{name}"] = [] if skipped else _specs(size, arm, tied=tied, association=plain)
    groups["long-stochastic"] = _specs(size, "stochastic", tied=True, association=plain)
    # Models that start in different ways
    starts: dict[str, Association] = {"random": "none", "mimic": "mimic"}
    for name, association in starts.items():
        groups[f"start-{name}"] = _specs(size, "start", association=association)
        groups[f"shortcut-{name}"] = _specs(size, "shortcut", association=association)
    for name, association in starts.items():
        groups[f"plain-{name}"] = _specs(size, "plain", association=association)
    # The last variable trained, or the first ones only
    for name in ("last", "first"):
        groups[f"mimic-{name}"] = _specs(size, name, association="mimic")
    # Chains over other groups of operations
    for group in GROUPS:
        groups[f"group-{group.lower()}"] = _specs(size, group, association=plain, group=group)
    # Models that start from one pretrained on text
    groups["start-pretrained"] = _specs(size, "start", pretrained=True)
    groups["pretrained"] = _pretrained(size, groups["start-pretrained"])
    groups["start-symbols"] = _specs(size, "start", pretrained=True, symbols=SYMBOLS)
    groups["shortcut-pretrained"] = _specs(size, "shortcut", pretrained=True)
    groups["plain-pretrained"] = _specs(size, "plain", pretrained=True)[:TEXT_SEEDS]
    # Chains of four without mimicking
    untaught = chain_models(UNTAUGHT_SEEDS[size], tied=False, association="query_key")
    random = chain_models(UNTAUGHT_SEEDS[size], tied=False, association="none")
    groups["untaught-random"] = with_seeds(random, FURTHER["untaught-untied"], size)
    # More seeds for claims that the ordinary number could not decide
    ordinary = {**groups, "untaught-untied": untaught}
    return groups | {more_seeds(name): with_seeds(ordinary[name], seeds, size) for name, seeds in FURTHER.items()}


def _specs(
    size: Size,
    name: str,
    *,
    tied: bool = False,
    association: Association = "none",
    group: str = "Z2",
    pretrained: bool = False,
    symbols: tuple[tuple[str, str], ...] = (),
) -> list[ModelSpec]:
    """The models of an arm, one per seed; empty if the size does not have it. Size `quick` pretrains none."""
    arm = ARMS[size].get(name)
    if arm is None or (pretrained and size == "quick"):
        return []
    task = arm.task(group)
    source: ModelSpec | str | None = None
    if pretrained:
        source = os.environ.get(BERT_VARIABLE, BERT_ON_HUB) if size == "paper" else text_models(arm.layers, 1)[0]
    return [
        ModelSpec(
            task=task,
            config=_config(size, task, arm, tied),
            settings=_settings(size, arm, association, tied),
            seed=seed,
            pretrained=source,
            symbols=tuple(pair for pair in symbols if pair[0] in task.vocab.ids),
        )
        for seed in range(arm.seeds)
    ]


def _config(size: Size, task: Lego, arm: Arm, tied: bool) -> Config:
    if size == "paper":
        return config_for(task, "albert_encoder" if tied else "bert_encoder", n_layers=arm.layers, head="linear")
    return config_for(task, "lego", n_layers=arm.layers, tied=tied)


def _settings(size: Size, arm: Arm, association: Association, tied: bool) -> TrainSettings:
    """Small models learn in minutes. The paper: 120,000 sentences, batches of 1000, 200 epochs, 5e-5, cosine to 0."""
    factor = arm.tied_longer if tied else 1
    steps: dict[str, Any] = {"curriculum": arm.curriculum} if arm.curriculum else {"steps": factor * arm.steps}
    steps |= {"depth_range": arm.depth_range, "association": association}
    if size != "paper":
        return TrainSettings(eval_every=100, **steps)
    # A curriculum draws new sentences at each length; without one the paper has a fixed training set
    training_set = {} if arm.curriculum else {"n_train": 120_000}
    return TrainSettings(
        batch_size=1000,
        learning_rate=5e-5,
        warmup_steps=0,
        decay_share=1.0,
        decay="cosine",
        precision="bfloat16",
        betas=(0.9, 0.999),
        weight_decay=0.0,
        eval_every=500,
        n_eval=2000,
        checkpoint_every=1000,
        mimicking=Mimicking(steps=5000 if tied else 1000, batch_size=200, learning_rate=5e-5),
        **training_set,
        **steps,
    )


def _pretrained(size: Size, fine_tuned: Sequence[ModelSpec]) -> list[ModelSpec]:
    """The models to look for association heads in before fine-tuning: seeds of the small one, or the published one."""
    if size == "paper":
        return list(fine_tuned[:1])
    return text_models(ARMS[size]["start"].layers, TEXT_SEEDS) if fine_tuned else []


def text_models(layers: int, seeds: int) -> list[ModelSpec]:
    """Small BERTs without next-sentence prediction, pretrained on Python sources."""
    task = Text(n_ctx=64, vocab_size=512, objective="masked")
    settings = TrainSettings(
        steps=TEXT_STEPS, tokens_per_step=2048, learning_rate=3e-3, decay_share=0.3, eval_every=250, n_eval=64
    )
    return seeded(task, config_for(task, "lego", n_layers=layers), settings, seeds)
