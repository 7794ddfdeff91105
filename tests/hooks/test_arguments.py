"""Types of plain arguments are checked from annotations, and errors name the argument."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from jaxtyping import Float

import hooks
import interp
from hooks import Transformer, TransformerConfig, verify
from hooks.checks import check_choice
from hooks.typed import check_field_types, checks_types
from interp import TrainSettings
from interp.known_answers import lego_loop
from interp.tasks import Dyck, Lego, Task, Template, cyclic, symmetric
from interp.theory import sign_counting
from interp.theory.pruning import random_network
from interp.training import Mimicking

TASK = Lego(n_vars=3)
HALF = Lego(n_vars=3, n_supervised=1)
SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_vocab": 5, "n_ctx": 8}
ARRAYS = [
    np.array([100, 200]),
    np.array([True, False]),
    np.array([]),
    np.array(3),
    np.array(["a", "b"]),
    np.array([None, 1], dtype=object),
    torch.tensor([1, 2]),
]
WRONG = {
    "n": (int, ["5", None, True, 2.5, [1], np.array([1])], [1, np.int64(3), 10**30, -1]),
    "share": (float, ["5", None, True, [0.5]], [1, 0.5, np.float32(0.5)]),
    "on": (bool, ["yes", 1, None, np.int64(1)], [True, np.True_, np.bool_(False)]),
    "name": (str, [3, None, b"a", ["a"]], ["a", ""]),
    "path": (str | Path, [3, None, b"a"], ["a", Path("a")]),
    "at": (int | None, ["5", True], [None, 3]),
    "kind": (Literal["a", "b"], [3, None, True], ["a"]),
    "several": (Sequence[int], [3, None, "123", {1}], [[1], (1, 2), range(3)]),
    "named": (Mapping[str, int], [3, None, [1]], [{}, {"a": 1}]),
    "mixed": (Literal["each"] | Sequence[int], [3, None], ["each", [1]]),
    "split": (int | Literal["all"], ["some", None], ["all", 3]),
    "record": (Callable[[np.ndarray], None] | None, [], [None, print]),
    "result": (Task | None, [], [None, TASK]),
    "other": (Any, [], [None, 3, "x", *ARRAYS]),
    "data": (Float[np.ndarray, "n"] | None, [3, [0.5], torch.zeros(2)], [None, np.zeros(2)]),
    "activations": (Float[torch.Tensor, "n"] | None, [3, [0.5]], [None, torch.zeros(2), np.zeros(2)]),
    "models": (Sequence[torch.nn.Module], [None, 3], [[], [torch.nn.Identity()]]),
    "settings": (TrainSettings | None, [3, {}, TASK, TrainSettings], [None, TrainSettings()]),
    "call": (Callable[..., Any] | None, [3, "x", [print]], [None, print, int]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_another_type_is_refused_with_the_name(name):
    annotation, wrong, right = WRONG[name]

    def function(**given):
        return given[name]

    function.__signature__ = Signature([Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)])
    checked = checks_types(function)
    for value in right:
        received = checked(**{name: value})
        assert received is value or (isinstance(value, np.generic) and type(received) in (int, float, bool))
    for value in (*wrong, *(ARRAYS if name not in ("other", "data", "activations") else ())):
        with pytest.raises(ValueError, match=f"^{name} is .*; it must be "):
            checked(**{name: value})


def test_positional_arguments_and_fields():
    @checks_types
    def function(model: Any, n: int = 3, *, seed: int = 0) -> int:
        return n + seed

    assert function("anything", 4, seed=1) == 5
    with pytest.raises(ValueError, match=r"^n is '4'; it must be an integer\.$"):
        function(None, "4")
    with pytest.raises(TypeError, match="unexpected keyword"):
        function(None, m=4)

    @checks_types
    def of_names(names: Sequence[str] | None) -> Any:
        return names

    with pytest.raises(ValueError, match=r"^names is 'a'; it must be a list or None\.$"):
        of_names("a")

    @dataclass
    class Settings:
        n: int = 3
        tied: bool = False
        kind: Literal["a", "b"] | None = None

        def __post_init__(self):
            check_field_types(self)

    with pytest.raises(ValueError, match=r"^tied is 'yes'; it must be True or False"):
        Settings(tied="yes")
    with pytest.raises(ValueError, match=r"^kind is 'c'; choose one of a, b\.$"):
        Settings(kind="c")


def test_numbers_of_numpy_can_be_stored(as_a_user):
    sizes = {name: np.int64(size) for name, size in SIZES.items()}
    cfg = TransformerConfig(**sizes, attn_scale=np.float32(0.5), block=np.str_("pre_ln"), tied=np.bool_(True))
    assert cfg.to_json() == TransformerConfig(**SIZES, attn_scale=0.5, tied=True).to_json()
    settings = TrainSettings(steps=np.int64(1), batch_size=np.uint8(4), n_eval=8, learning_rate=np.float16(0.5))
    assert type(settings.learning_rate) is float
    json.dumps(asdict(settings))


@pytest.mark.slow
def test_numbers_of_numpy_can_be_stored_with_runs_and_results(tmp_path, as_a_user):
    settings = TrainSettings(steps=np.int64(1), batch_size=np.uint8(4), n_eval=8)
    run = interp.train(model(), TASK, settings, seed=np.int64(3), folder=tmp_path / "run")
    assert interp.training.TrainingRun.load(run.folder).manifest["seed"] == 3
    ablation = interp.ablate_heads(model(), TASK, n=np.int64(8), method=np.str_("zero"))
    ablation.save(tmp_path / "ablation.json")
    assert str(type(ablation).load(tmp_path / "ablation.json")) == str(ablation)


def test_an_error_quotes_at_most_200_characters():
    for value in ("x" * 10**6, ["x" * 1000] * 1000, "a\nb" * 1000):
        with pytest.raises(ValueError, match=r"^n is .*; it must be an integer") as raised:
            interp.evaluate(model(), TASK, n=value)
        assert len(str(raised.value)) < 300
    with pytest.raises(ValueError, match=r"solver is 'xxx") as raised:
        check_choice("solver", "x" * 10**6, Literal["ridge", "logistic"])
    assert len(str(raised.value)) < 300


def model():
    return Transformer(interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2), seed=1).eval()


CALLS = {
    "audit": (lambda **given: interp.audit(model(), TASK, **given), ["n", "limit", "at_chance", "seed"]),
    "audit_probe": (lambda **given: interp.audit_probe(model(), TASK, **given), ["n_train", "n_test", "seed"]),
    "edges": (lambda **given: interp.edges(model(), TASK, **given), ["n", "method", "between"]),
    "patch": (lambda **given: interp.patch(model(), TASK, **given), ["n", "site", "positions"]),
    "evaluate": (lambda **given: interp.evaluate(model(), TASK, **given), ["n", "split", "seed"]),
    "check_task": (lambda **given: interp.check_task(**{"task": TASK, **given}), ["task", "splits"]),
    "extrapolate": (lambda **given: interp.extrapolate(model(), TASK, **given), ["n", "seed"]),
    "ablate_heads": (lambda **given: interp.ablate_heads(model(), TASK, **given), ["n", "n_random", "seed"]),
    "classify_heads": (lambda **given: interp.classify_heads(model(), TASK, **given), ["n", "alpha", "seed"]),
    "diagonals": (lambda **given: interp.diagonals(model(), **given), ["n_null", "seed"]),
    "show_attention": (lambda **given: interp.show_attention(model(), TASK, **given), ["seed"]),
    "probe": (lambda **given: interp.probe(model(), TASK, **given), ["n_train", "n_test", "verify", "seed"]),
    "sign_counting": (lambda **given: sign_counting(model(), TASK, **given), ["n", "seed"]),
    "variation": (lambda **given: interp.attention_variation([model(), model()], TASK, **given), ["n_sampled", "seed"]),
    "train": (lambda **given: interp.train(model(), TASK, **given), ["seed", "folder", "fresh"]),
    "make_model": (lambda **given: hooks.make_model(**{"cfg": model().cfg, **given}), ["cfg", "seed"]),
    "Transformer": (lambda **given: Transformer(**{"cfg": model().cfg, **given}), ["cfg", "seed"]),
    "lego_loop": (lambda **given: lego_loop(**{"task": TASK, **given}), ["n_layers"]),
    "verify": (lambda **given: verify(model(), **given), ["seed"]),
    "cyclic": (cyclic, ["n"]),
    "symmetric": (symmetric, ["n"]),
}


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("name", CALLS)
def test_public_functions_name_the_argument(name):
    call, arguments = CALLS[name]
    for argument in arguments:
        for value in (object(), 3.25j, *ARRAYS):
            with pytest.raises(ValueError, match=rf"(^|\.){argument} is "):
                call(**{argument: value})


FIELDS = [
    (Lego, {}, ["n_vars"]),
    (Dyck, {}, ["n_types", "max_depth", "length", "q"]),
    (Template, {"templates": "same_different"}, ["form"]),
    (Mimicking, {}, ["steps", "tokens"]),
    (TrainSettings, {}, ["steps", "learning_rate", "curriculum", "keep", "betas"]),
    (TransformerConfig, SIZES, [*SIZES, "tied", "vo_identity"]),
]


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(("make", "given", "names"), FIELDS, ids=lambda value: getattr(value, "__name__", ""))
def test_fields_of_settings(make, given, names):
    for name in names:
        for value in (object(), 3.25j, "5" * 10_000, [None], *ARRAYS):
            with pytest.raises(ValueError, match=rf"{name}(\[0\])? ") as raised:
                make(**{**given, name: value})
            assert len(str(raised.value)) < 400, name


NAMED = {
    "extrapolate depths": (lambda value: interp.extrapolate(model(), HALF, depths=value), "depths"),
    "classify kinds": (lambda value: interp.classify_heads(model(), TASK, n=16, kinds=value), "kinds"),
    "audit outcomes": (lambda value: interp.audit(model(), TASK, n=256, outcomes=value), "outcomes"),
    "show heads": (lambda value: interp.show_attention(model(), TASK, heads=value), "heads"),
    "keep orders": (lambda value: interp.keep_heads(model(), TASK, n=16, orders=value), "orders"),
    "curve fractions": (lambda value: interp.pruning_curve(model(), TASK, n=16, fractions=value), "fractions"),
    "report results": (lambda value: interp.report(value, "page.html", title="page"), "results"),
}


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("name", NAMED)
def test_a_choice_of_nothing_is_refused(name):
    """Nor may what is chosen be no sequence, or have elements of another kind."""
    call, argument = NAMED[name]
    values = ([], (), 0) if name == "report results" else ([], (), [[]], [None], [{}])
    for value in values:
        with pytest.raises(ValueError, match=rf"^{argument}\b"):
            call(value)


COUNTED = {
    "examples": lambda value: interp.show_attention(model(), TASK, examples=value),
    "n_layers": lambda value: random_network(model().cfg, n_layers=value),
    "scale": lambda value: random_network(model().cfg, scale=value),
}


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_nothing_are_refused(name):
    for value in (0, -1, True, "x", float("nan"), []):
        with pytest.raises(ValueError, match=rf"^{name} is "):
            COUNTED[name](value)
