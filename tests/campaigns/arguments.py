"""Arguments that are plainly wrong: public functions, tasks, settings and configs refuse them and name the argument."""

import reprlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from short_runs import new_model
from tries import TASK, Try

import interp
from hooks import Transformer, TransformerConfig, load_checkpoint, save_checkpoint
from interp.tasks import Dyck, Lego, Template
from interp.theory import kernel_regression, sign_counting
from interp.training import TrainingRun

LONGEST = 800
"""Characters of an error."""
TEXT = st.text(max_size=300)
OTHER = st.one_of(st.binary(max_size=5), st.lists(st.none(), max_size=3), st.dictionaries(TEXT, st.none(), max_size=1),
                  st.complex_numbers(), st.builds(object))  # fmt: skip
FRACTIONS = st.floats(allow_nan=True, allow_infinity=True).filter(lambda value: not float(value).is_integer())
SEED = st.one_of(OTHER, TEXT, st.none(), st.booleans(), FRACTIONS)
COUNT = st.one_of(SEED, st.integers(max_value=-1))
LEVEL = st.one_of(OTHER, TEXT, st.none(), st.booleans(), st.floats(max_value=0), st.floats(min_value=1),
                  st.just(float("nan")), st.integers())  # fmt: skip
FINITE = st.one_of(OTHER, TEXT, st.none(), st.booleans(), st.sampled_from([float("nan"), float("inf"), -float("inf")]))
POSITIVE = st.one_of(FINITE, st.floats(max_value=-1e-9))
FLAG = st.one_of(OTHER, TEXT, st.none(), st.integers(), st.floats())
CHOICE = st.one_of(OTHER, TEXT.map(lambda text: f"{text}?"), st.none(), st.integers(), st.floats())
OPTIONAL_CHOICE = CHOICE.filter(lambda value: value is not None)
NAMES = st.one_of(TEXT, st.binary(max_size=5), st.integers(), st.floats(),
                  st.lists(TEXT.map(lambda text: f"{text}?"), min_size=1, max_size=3))  # fmt: skip
NOTHING = st.sampled_from([None, 3, 2.5, "x", b"x", [], {}, object(), torch.nn.Linear(2, 2), TransformerConfig, Lego])
PATH = st.one_of(st.none(), st.integers(), st.floats(), st.binary(max_size=5), st.lists(st.none(), max_size=2))

VERB = {"model": NOTHING, "task": NOTHING, "seed": SEED}
WRONG: dict[str, dict[str, st.SearchStrategy]] = {
    "audit": VERB | {"n": COUNT.filter(lambda n: n != "enough"), "limit": COUNT, "alpha": LEVEL, "outcomes": NAMES,
                     "at_chance": FLAG},
    "audit_parts": VERB | {"n": COUNT.filter(lambda n: n != "enough"), "limit": COUNT, "alpha": LEVEL, "parts": CHOICE},
    "audit_probe": VERB | {"label": OPTIONAL_CHOICE, "n_train": COUNT, "n_test": COUNT, "alpha": LEVEL},
    "evaluate": VERB | {"n": COUNT, "split": CHOICE},
    "extrapolate": VERB | {"n": COUNT, "split": CHOICE},
    "ablate": VERB | {"n": COUNT, "method": CHOICE, "parts": CHOICE},
    "ablate_heads": VERB | {"n": COUNT, "method": CHOICE, "n_random": COUNT, "heads": CHOICE},
    "patch": VERB | {"n": COUNT, "site": CHOICE, "positions": CHOICE},
    "classify_heads": VERB | {"n": COUNT, "kinds": NAMES, "alpha": LEVEL},
    "show_attention": VERB | {"viewer": CHOICE, "heads": NAMES},
    "probe": VERB | {"label": OPTIONAL_CHOICE, "n_train": COUNT, "n_test": COUNT, "solver": CHOICE, "verify": FLAG},
    "attention_variation": {"models": NOTHING, "task": NOTHING, "n_baseline": COUNT, "resamples": COUNT, "seed": SEED},
    "pruning_curve": VERB | {"n": COUNT, "by": CHOICE, "fractions": NAMES},
    "sign_counting": VERB | {"n": COUNT},
    "diagonals": {"model": NOTHING, "n_null": COUNT, "seed": SEED},
    "check_task": {"task": NOTHING},
    "config_for": {"task": NOTHING, "family": OPTIONAL_CHOICE, "d_model": COUNT, "n_layers": COUNT},
    "kernel_regression": {"task": NOTHING, "n": COUNT, "n_validation": COUNT, "n_test": COUNT, "seed": SEED},
    "train": {"model": NOTHING, "task": NOTHING, "seed": SEED, "fresh": FLAG,
              "settings": NOTHING.filter(lambda one: one is not None)},
    "save_checkpoint": {"path": PATH},
    "load_checkpoint": {"path": PATH},
    "TrainingRun.load": {"folder": PATH},
    "Lego": {"n_vars": COUNT, "alphabet": FINITE, "clause_order": CHOICE, "sentence_format": CHOICE, "group": NOTHING},
    "Dyck": {"n_types": COUNT, "max_depth": COUNT, "q": POSITIVE, "length": COUNT, "words": CHOICE, "loss_on": CHOICE},
    "Template": {"templates": FINITE, "form": OPTIONAL_CHOICE, "train": COUNT, "weights": TEXT},
    "TrainSettings": {"steps": COUNT, "learning_rate": POSITIVE, "warmup_steps": COUNT, "decay": CHOICE,
                      "weight_decay": POSITIVE, "clip_norm": POSITIVE, "association": CHOICE, "keep": CHOICE,
                      "precision": CHOICE, "eval_every": COUNT, "n_eval": COUNT, "checkpoint_every": COUNT,
                      "contrastive": POSITIVE, "tokens_per_step": COUNT, "current_share": POSITIVE},
    "TransformerConfig": {"d_vocab": COUNT, "d_model": COUNT, "n_heads": COUNT, "n_layers": COUNT, "n_ctx": COUNT,
                          "block": CHOICE, "attention": CHOICE, "positions": CHOICE, "tied": FLAG, "activation": CHOICE,
                          "attn_scale": POSITIVE, "layer_norm_eps": POSITIVE, "init": CHOICE},
}  # fmt: skip
"""Strategies of values that are wrong, by function and argument."""


@cache
def calls() -> dict[str, Callable[..., Any]]:
    """Each function with right arguments, small enough to run if a wrong one is accepted."""
    dyck, template = Dyck(n_types=1, max_depth=2, length=4), Template(train=8, validation=4, test=4)
    model = new_model(TASK).eval()
    on = partial(dict, model=model, task=TASK)
    return {
        "audit": partial(interp.audit, **on(n=64, at_chance=True)),
        "audit_parts": partial(interp.audit_parts, **on(n=64, at_chance=True)),
        "audit_probe": partial(interp.audit_probe, **on(n_train=64, n_test=32)),
        "evaluate": partial(interp.evaluate, **on(n=8)),
        "extrapolate": partial(interp.extrapolate, **on(n=8)),
        "ablate": partial(interp.ablate, **on(n=8)),
        "ablate_heads": partial(interp.ablate_heads, **on(n=8)),
        "patch": partial(interp.patch, **on(n=8)),
        "classify_heads": partial(interp.classify_heads, **on(n=16)),
        "show_attention": partial(interp.show_attention, **on()),
        "probe": partial(interp.probe, **on(n_train=64, n_test=32)),
        "attention_variation": partial(interp.attention_variation, models=[new_model(dyck)] * 2, task=dyck,
                                       n_baseline=4, resamples=20),
        "pruning_curve": partial(interp.pruning_curve, **on(n=8, fractions=(1, 0))),
        "sign_counting": partial(sign_counting, **on(n=8)),
        "diagonals": partial(interp.diagonals, model=model, n_null=4),
        "check_task": partial(interp.check_task, task=TASK),
        "config_for": partial(interp.config_for, task=TASK),
        "kernel_regression": partial(kernel_regression, task=template, n=8, n_validation=8, n_test=8),
        "train": partial(interp.train, model=Transformer(interp.config_for(TASK, n_layers=1, d_model=8, n_heads=2)),
                         task=TASK, settings=interp.TrainSettings(steps=1, warmup_steps=0, n_eval=4)),
        "save_checkpoint": partial(save_checkpoint, model=model),
        "load_checkpoint": load_checkpoint,
        "TrainingRun.load": TrainingRun.load,
        "Lego": Lego,
        "Dyck": Dyck,
        "Template": Template,
        "TrainSettings": interp.TrainSettings,
        "TransformerConfig": partial(TransformerConfig, d_vocab=5, d_model=8, n_heads=2, n_layers=1, n_ctx=8),
    }  # fmt: skip


def outcome(function: str, name: str, value: Any) -> Try:
    """Call a function with one wrong argument."""
    what = f"{function}({name}={reprlib.repr(value)})"
    try:
        calls()[function](**{name: value})
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        if name not in text:
            return Try(what, "unclear", f"{name} is not named: {text[:200]}")
        return Try(what, "unclear" if len(text) > LONGEST else None, f"{len(text)} characters")
    except Exception as error:
        return Try(what, "unclear", f"{type(error).__name__}: {str(error)[:200]}")
    return Try(what, "silently wrong", "accepted")


def tries(n: int, folder: Path) -> Iterator[Try]:
    pairs = [(function, name) for function, names in WRONG.items() for name in names]
    options = {"derandomize": True, "database": None, "deadline": None, "phases": [Phase.generate]}
    for function, name in pairs:
        found: list[Try] = []
        chosen = settings(max_examples=-(-n // len(pairs)), suppress_health_check=list(HealthCheck), **options)
        _repeated(
            chosen, WRONG[function][name], lambda value, of=(function, name), to=found: to.append(outcome(*of, value))
        )
        yield from found


def _repeated(options: settings, values: st.SearchStrategy, call: Callable[[Any], None]) -> None:
    @options
    @given(values)
    def one(value: Any) -> None:
        call(value)

    one()
