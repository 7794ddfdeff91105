"""Claims that the transformers that we read are the authors': their logits and their accuracy."""

import json
from copy import deepcopy
from functools import partial
from typing import Any

import pandas as pd
import torch
from transformer_lens import TransformerBridge, TransformerBridgeConfig

from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import Packs
from case_studies.frame.rules import AtMost, Value
from case_studies.recipes.judges import Row
from interp.tasks.base import logits_at_targets
from published_readings.packs import Pack, read_packs
from published_readings.runs import right, runs

DOUBLE, DIFFERENCE, ALL = "double precision", "difference", "of all models"
"""Columns of the judged numbers, and of the number of inputs or answers of all models."""
LARGEST = 1e-5
"""Largest difference of a logit."""
NAMES = {"weights": "blocks", "attention": "attn", "norm_1": "ln1", "norm_2": "ln2", "w_in": "in", "w_out": "out",
         "positions": "pos_embed", "norm_final": "ln_final"}  # fmt: skip
"""TransformerLens's names of our modules."""
SETTINGS = ("d_model", "n_heads", "n_layers", "n_ctx", "d_vocab", "d_vocab_out", "d_head", "attn_only", "attention_dir",
            "normalization_type", "eps", "attn_scale")  # fmt: skip
"""Settings of a pack that TransformerLens's model is built with; those of the MLP are added where there is one."""


def measure_logits(evidence: Evidence, *, packs: Packs) -> pd.DataFrame:
    """Largest difference of a logit from TransformerLens's model with the same arrays, one row a pack.

    In double precision; single precision is shown too, in which the order of sums makes a difference.
    """
    rows = []
    for name, pack in read_packs(packs).items():
        double, single = (_difference(pack, dtype) for dtype in (torch.float64, torch.float32))
        logits = runs(pack).logits()
        row = {"model": name, DOUBLE: double, "single precision": single, "largest logit": float(logits.abs().max())}
        rows.append({**row, "inputs": len(logits), "answers": logits.shape[1]})
    frame = pd.DataFrame(rows)
    return frame.assign(**{ALL: frame["inputs"].sum()})


@torch.no_grad()
def _difference(pack: Pack, dtype: torch.dtype) -> float:
    batch = pack.task.batch(pack.task.inputs)
    inputs: dict[str, Any] = {} if batch.attention_mask is None else {"attention_mask": batch.attention_mask}
    ours, theirs = deepcopy(pack.model).to(dtype), lens_model(pack).to(dtype, print_details=False)
    found = [logits_at_targets(model(batch.tokens, **inputs), batch) for model in (ours, theirs)]
    return float((found[0] - found[1]).abs().max())


def lens_model(pack: Pack) -> TransformerBridge:
    """TransformerLens's native model with the weights of a pack."""
    settings: dict[str, Any] = {"act_fn": "relu"} | {
        name: pack.config[name] for name in SETTINGS if name in pack.config
    }
    if not pack.config["attn_only"]:
        settings |= {name: pack.config[name] for name in ("d_mlp", "act_fn")}
    bridge: Any = TransformerBridge
    model = bridge.boot_native(TransformerBridgeConfig(**settings, seed=0))
    state = pack.model.state_dict()
    model.load_state_dict(
        {".".join(NAMES.get(part, part) for part in name.split(".")): one for name, one in state.items()}
    )
    return model.eval()


def measure_accuracy(evidence: Evidence, *, packs: Packs) -> pd.DataFrame:
    """Difference of a model's accuracy on the inputs of its pack from the one that the pack states, one row a pack."""
    rows = []
    for path, (name, pack) in zip(packs.paths, read_packs(packs).items(), strict=True):
        hits = right(runs(pack).logits(), pack.task.labels)
        stated = float(json.loads(path.read_text())["measured"]["accuracy_per_answer"])
        found = float(hits.double().mean())
        row = {"model": name, DIFFERENCE: abs(found - stated), "accuracy": found, "by the pack": stated}
        rows.append({**row, "answers": len(hits)})
    frame = pd.DataFrame(rows)
    return frame.assign(**{ALL: frame["answers"].sum()})


def claims(packs: Packs) -> tuple[Claim, ...]:
    """The claims on the packs' models."""
    return (
        Claim(
            id="logits", source="ours", preregistration=BEFORE_ANY_MODEL,
            statement="The transformers that we read compute what TransformerLens computes from the same weights.",
            method="Largest difference of a logit where answers are read, over all inputs of all packs, in "
            "double precision",
            rule=Value(AtMost(LARGEST)), quantity="largest difference of logits", repeatable=False,
            measure=partial(measure_logits, packs=packs), judged=Row(DOUBLE, unit="inputs", units=ALL, exact=True),
        ),
        Claim(
            id="accuracy", source="ours", preregistration=BEFORE_ANY_MODEL,
            statement="Their accuracy is the one that the packs state.",
            method="Largest difference of an accuracy, over the packs; stated to four decimals",
            rule=Value(AtMost(0.0001)), quantity="largest difference of accuracies",
            measure=partial(measure_accuracy, packs=packs),
            judged=Row(DIFFERENCE, unit="answers", units=ALL, exact=True),
        ),
    )  # fmt: skip
