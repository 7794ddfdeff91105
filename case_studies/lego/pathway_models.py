"""Models with hard-coded attention: BERT, Hardcode and Hybrid, pretrained on text.

The three models of a seed see the same windows of text, for the same number of steps.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from case_studies.frame.evidence import Size
from interp.sweeps.spec import ModelSpec
from interp.tasks import Corpus, Text
from interp.training.configs import config_for
from interp.training.settings import TrainSettings

FAMILIES = {"bert": "bert_encoder", "hardcode": "hardcode", "hybrid": "hybrid"}
"""Presets of the model families."""
CORPUS_VARIABLE = "UNMYOPIC_CORPUS"
"""Environment variable with the text of size `paper`: a folder of text files, or a hub data set, `name` or
`name:configuration`."""
NAMED_VOCAB = 30_522
"""Vocabulary size for that text, BERT's."""
ARTICLES = 1_000_000
"""Rows read from a hub data set."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Models and training at one size of the study."""

    sizes: Mapping[str, Any]
    """Model sizes; twelve heads at every size, so that a family has the same mixture of heads everywhere."""
    vocab_size: int
    lengths: tuple[tuple[int, int], ...]
    """Pretraining curriculum: tokens per window, and number of steps at that length."""
    pretraining: Mapping[str, Any]
    """Other settings of pretraining."""
    seeds: int


SCALES: dict[Size, Scale] = {
    "standard": Scale(
        sizes={"d_model": 96, "n_layers": 6, "block": "pre_ln"},
        vocab_size=512,
        lengths=((64, 7000), (128, 3000)),
        pretraining={"tokens_per_step": 2048, "learning_rate": 3e-3, "eval_every": 100},
        seeds=3,
    ),
    "paper": Scale(
        sizes={"n_layers": 12},
        vocab_size=8192,
        lengths=((128, 7000), (512, 3000)),
        pretraining={
            "tokens_per_step": 131_072,
            "learning_rate": 1e-4,
            "warmup_steps": 1000,
            "decay_share": 0.9,
            "betas": (0.9, 0.999),
            "precision": "bfloat16",
            "eval_every": 250,
            "checkpoint_every": 500,
        },
        seeds=3,
    ),
}


def pathway_groups(size: Size) -> Mapping[str, Sequence[ModelSpec]]:
    """Groups `text-FAMILY`, the pretrained models; at size `quick` all are empty."""
    if size not in SCALES:
        return {f"text-{name}": [] for name in FAMILIES}
    return {f"text-{name}": _pretrained(size, SCALES[size], name) for name in FAMILIES}


def _pretrained(size: Size, scale: Scale, name: str) -> list[ModelSpec]:
    """Masked language models, without next-sentence prediction."""
    corpus = _corpus(size)
    vocab_size = scale.vocab_size if corpus == "python" else NAMED_VOCAB
    task = Text(corpus=corpus, objective="masked", n_ctx=scale.lengths[-1][0], vocab_size=vocab_size)
    settings = TrainSettings(**{"curriculum": scale.lengths, "decay_share": 0.3, "n_eval": 128, **scale.pretraining})
    config = config_for(task, FAMILIES[name], **{"n_heads": 12, **scale.sizes})
    return [ModelSpec(task=task, config=config, settings=settings, seed=seed) for seed in range(scale.seeds)]


def _corpus(size: Size) -> Corpus | str:
    """Python's standard library; at size `paper` the text that the environment variable names, if it is set."""
    path = os.environ.get(CORPUS_VARIABLE)
    if size != "paper" or not path:
        return "python"
    if Path(path).expanduser().exists():
        return Corpus.from_folder(path)
    name, _, configuration = path.partition(":")
    return Corpus.from_hub(name, config=configuration or None, most=ARTICLES)
