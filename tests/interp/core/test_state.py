"""Public functions leave models, random states and torch's settings as they were, whether they return or raise."""

import contextlib
import copy
import random
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from bridges import bridge_of
from own_models import MAPS, PlainModel, transformer
from sampled import sampled
from torch import nn
from transformer_lens.hook_points import HookPoint

import hooks
import interp
from hooks.state import default_process_state, evaluation_mode
from interp.algorithms import chain_loop
from interp.core.verbs import needs_of_verbs
from interp.tasks import Lego
from interp.theory.signs import sign_counting

TASK = Lego(n_vars=3, sentence_format="compact")
LOOP = chain_loop(TASK)
CORPUS = interp.tasks.Corpus(documents={f"page {n}": f"This is page {n}. " * 9 for n in range(20)})
BRACKETS = interp.tasks.Dyck(n_types=2, max_depth=2)


class Fails:
    """A hook that raises at one of the next passes, if it is set to."""

    passes_left = None

    def __call__(self, module, inputs, output):
        if self.passes_left is not None:
            self.passes_left -= 1
            if self.passes_left < 0:
                raise RuntimeError("on purpose")


class WithStatistics(PlainModel):
    """A plain model with running statistics, dropout and a counter of passes, as users write them."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.norm_of_batch, self.dropout = nn.BatchNorm1d(16), nn.Dropout(0.5)
        self.register_buffer("n_passes", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, tokens, attention_mask=None):
        self.n_passes += 1
        self.norm_of_batch(self.dropout(self.embed(tokens)).mT)
        return super().forward(tokens, attention_mask)


def native():
    model = hooks.Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2))
    return model, model.embed


def bridge():
    model = bridge_of("native", d_vocab=TASK.d_vocab, d_model=16, d_head=8, n_heads=2, n_ctx=TASK.n_ctx)
    model.hook_dict["blocks.0.hook_resid_pre"].add_hook(lambda x, hook: None, is_permanent=False)
    model(torch.zeros(1, 4, dtype=torch.long))  # the bridge registers hooks of its own with its first pass
    return model, next(module for module in model.modules() if isinstance(module, nn.Embedding))


def wrapped():
    module = WithStatistics(transformer(TASK).cfg)
    names = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
    return hooks.from_module(module, **names, untrained=lambda: WithStatistics(module.cfg)), module.embed


KINDS = {"native": native, "bridge": bridge, "wrapped": wrapped}


@pytest.fixture(scope="module")
def models():
    """A model of each kind, with mixed modes, frozen weights, gradients and hooks, and the hook that may raise."""
    held = {}
    for kind, make in KINDS.items():
        model, embedding = make()
        fails = Fails()
        embedding.register_forward_hook(fails)
        modules = everything_in(model)
        for module in modules:
            module.training = True
        for module in modules[5::3]:
            module.training = False
        parameters = list(parameters_of(model))
        parameters[-1].requires_grad_(False)
        parameters[0].grad = torch.ones_like(parameters[0])
        held[kind] = model, fails
    return held


def everything_in(model):
    """All modules that a user may hold: of the wrapper, of the bridge, and of the model in it."""
    roots = [model]
    for name in ("bridge", "original_model"):
        roots += [getattr(root, name) for root in roots if isinstance(getattr(root, name, None), nn.Module)]
    return list({id(module): module for root in roots for module in root.modules()}.values())


def parameters_of(model):
    parameters = (parameter for module in everything_in(model) for parameter in module.parameters(recurse=False))
    return {id(parameter): parameter for parameter in parameters}.values()


def state_of(model):
    state = {}
    for index, module in enumerate(everything_in(model)):
        name = f"{index} {type(module).__name__}"
        state[name, "mode"] = module.training
        state[name, "hooks"] = [
            list(getattr(module, table).values())
            for table in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        ]
        state[name, "forward"] = vars(module).get("forward")
        if isinstance(module, HookPoint):
            state[name, "hooks of TransformerLens"] = len(module.fwd_hooks), len(module.bwd_hooks)
        for key, buffer in module.named_buffers(recurse=False):
            state[name, key] = buffer.tolist()
    for index, parameter in enumerate(parameters_of(model)):
        gradient = parameter.grad
        state[index] = (
            parameter.data_ptr(), parameter.tolist(), parameter.requires_grad, parameter._version,
            None if gradient is None else (id(gradient), gradient.tolist()),
        )  # fmt: skip
    return state


def settings():
    """Random states and settings of this process."""
    backends = torch.backends
    return {
        "python": random.getstate(),
        "numpy": [str(part) for part in np.random.get_state()],  # noqa: NPY002
        "torch": torch.get_rng_state().tolist(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()),
        "threads": torch.get_num_threads(),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.get_deterministic_debug_mode()),
        "cudnn": (backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic),
        "fast path": backends.mha.get_fastpath_enabled(),
        "errors of numpy": np.geterr(),
        "warnings": list(warnings.filters),
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


TINY = interp.TrainSettings(steps=2, n_eval=16, batch_size=4)


def trained_in(folder):
    """The folder of a run of one step."""
    interp.train(other_model(), TASK, TINY, folder=folder / "run")
    return folder / "run"


def run_of(model):
    run = interp.train(other_model(), TASK, TINY)
    return replace(run, model=model)


def other_model():
    return hooks.make_model(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=1)


def sweep(model, folder):
    cfg = interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2)
    base = interp.sweeps.ModelSpec(task=TASK, config=cfg, settings=TINY, seed=0)
    return interp.sweep(interp.sweeps.Sweep(base, {"seed": [0]}), folder / "sweep", n_jobs=1)


FUNCTIONS = {
    "implements": lambda model, folder: interp.implements(model, TASK, LOOP, n=32),
    "audit": lambda model, folder: interp.audit(model, TASK, n=32, at_chance=True),
    "audit_probe": lambda model, folder: interp.audit_probe(model, TASK, n_train=64, n_test=64),
    "attention_variation": lambda model, folder: interp.attention_variation(
        [model, copy.deepcopy(model)], TASK, n_sampled=4
    ),
    "supported_verbs": lambda model, folder: interp.supported_verbs(model),
    "over_training": lambda model, folder: interp.over_training(run_of(model), interp.evaluate),
    "evaluate": lambda model, folder: interp.evaluate(model, TASK, n=32),
    "extrapolate": lambda model, folder: interp.extrapolate(
        model, Lego(n_vars=3, sentence_format="compact", n_supervised=2), n=16
    ),
    "perplexity": lambda model, folder: interp.perplexity(
        model, interp.tasks.Text(corpus=CORPUS, n_ctx=8, vocab_size=300), n=8
    ),
    "audit_parts": lambda model, folder: interp.audit_parts(model, TASK, n=32, at_chance=True),
    "ablate": lambda model, folder: interp.ablate(model, TASK, n=16, method="resample"),
    "ablate_heads": lambda model, folder: interp.ablate_heads(model, TASK, n=16, method="resample"),
    "classify_heads": lambda model, folder: interp.classify_heads(model, TASK, n=32, untrained=1),
    "diagonals": lambda model, folder: interp.diagonals(model, n_null=10),
    "keep_heads": lambda model, folder: interp.keep_heads(model, TASK, n=16),
    "logit_lens": lambda model, folder: interp.logit_lens(model, TASK, n=16),
    "logit_attribution": lambda model, folder: interp.logit_attribution(model, TASK, n=16),
    "edges": lambda model, folder: interp.edges(model, TASK, n=16),
    "explain_attention": lambda model, folder: interp.explain_attention(model, TASK, (1, 0), n=16),
    "patch": lambda model, folder: interp.patch(model, TASK, n=16),
    "show_attention": lambda model, folder: interp.show_attention(model, TASK, other_model=model),
    "probe": lambda model, folder: interp.probe(model, TASK, n_train=96, n_test=64, verify=True),
    "report": lambda model, folder: interp.report([model], folder / "page.html", title="x"),
    "report_run": lambda model, folder: interp.report_run(run_of(model), TASK, folder / "page.html", n_test=16),
    "check_task": lambda model, folder: interp.check_task(TASK),
    "balance_violation": lambda model, folder: interp.balance_violation(model, BRACKETS),
    "pruning_curve": lambda model, folder: interp.pruning_curve(model, TASK, by="magnitude", fractions=[1, 0.5], n=32),
    "sweep": sweep,
    "config_for": lambda model, folder: interp.config_for(TASK),
    "load": lambda model, folder: interp.load(trained_in(folder)),
    "pretrained": lambda model, folder: interp.pretrained(TASK, model),
    "train": lambda model, folder: interp.train(model, TASK, TINY),
    # further functions of the packages
    "sign_counting": lambda model, folder: sign_counting(model, TASK, n=16),
    "indistinguishable": lambda model, folder: interp.indistinguishable(model, TASK),
    "hooks.verify": lambda model, folder: hooks.verify(model),
    "hooks.from_bridge": lambda model, folder: hooks.from_bridge(model, tokens=torch.arange(18).view(3, 6) % 9),
}
NO_FUNCTIONS = {"TrainSettings", "algorithms", "auditing", "comparison", "evaluation", "heads", "known_answers"}
NO_FUNCTIONS |= {"Intervention", "probing", "sweeps", "tasks", "theory", "training"}
OTHER_MODELS = {"balance_violation", "perplexity", "report", "over_training", "pretrained", "indistinguishable"}
OTHER_MODELS |= {"hooks.from_bridge"}
"""Functions that refuse the native model of these tests."""
REFUSALS = (ValueError, TypeError, AttributeError)


def test_every_public_function_is_tried():
    assert set(interp.__all__) - NO_FUNCTIONS == {name for name in FUNCTIONS if hasattr(interp, name)}


def as_user_sets_it():
    """Settings that differ from torch's defaults, in which a user may call us."""
    stack = contextlib.ExitStack()
    for value, setter in ((torch.get_default_dtype(), torch.set_default_dtype),):
        stack.callback(setter, value)
    torch.set_default_dtype(torch.float64)
    stack.enter_context(torch.autocast("cpu", torch.bfloat16))
    stack.enter_context(torch.no_grad())
    return stack


TRIED = [(name, kind, raising) for name in FUNCTIONS for kind in KINDS for raising in (False, True)]
BY_DEFAULT = [(name, kind, kind == "bridge") for name in FUNCTIONS for kind in KINDS]
"""Every function and kind of model once. An error leaves most behind on a bridge, whose hooks are many."""


@pytest.mark.parametrize(("name", "kind", "raising"), sampled(TRIED, BY_DEFAULT))
def test_state_is_as_before(name, kind, raising, models, folders, as_a_user):
    model, fails = models[kind]
    if name == "train" and kind == "native" and not raising:
        model = copy.deepcopy(model)
    with as_user_sets_it():
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
        before, settings_before = state_of(model), settings()
        fails.passes_left = (0 if name == "train" else 2) if raising else None
        error = None
        try:
            FUNCTIONS[name](model, folders)
        except (*REFUSALS, RuntimeError) as raised:
            error = raised
        fails.passes_left = None
        after, settings_after = state_of(model), settings()
    # An error is the one on purpose, or a refusal
    assert error is None or "on purpose" in str(error) or isinstance(error, REFUSALS), error
    if not raising and name in needs_of_verbs() and name != "perplexity":
        assert (error is None) == (not interp.supported_verbs(model, TASK).obstacles[name]), error
    if not raising and kind == "native" and name not in OTHER_MODELS:
        assert error is None
    assert settings_after == settings_before
    if name == "train" and error is None:
        return
    differing = [key for key in before if before[key] != after.get(key)]
    assert not differing
    assert set(after) == set(before)


@contextlib.contextmanager
def varied_settings():
    """Every setting that could change a number, as a caller may have set it, at once."""
    with (
        setting(torch.bfloat16),
        torch.autocast("cpu", torch.bfloat16),
        torch.no_grad(),
        torch.inference_mode(),
        torch.device("meta"),
    ):
        yield


@contextlib.contextmanager
def setting(dtype):
    """Another default dtype within the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


COMPARED = ("evaluate", "probe", "audit_probe", "classify_heads", "ablate", "ablate_heads", "keep_heads", "diagonals")
COMPARED += (
    "logit_lens",
    "logit_attribution",
    "edges",
    "explain_attention",
    "patch",
    "extrapolate",
    "pruning_curve",
    "implements",
    "audit",
    "sign_counting",
    "hooks.verify",
)


@pytest.mark.parametrize("name", COMPARED)
def test_results_do_not_depend_on_the_settings(name, folders):
    model, _ = native()
    expected = str(FUNCTIONS[name](copy.deepcopy(model), folders))
    with varied_settings():
        result = FUNCTIONS[name](model, folders)
    assert str(result) == expected


def test_training_does_not_depend_on_the_settings():
    weights = []
    for context in (contextlib.nullcontext, varied_settings):
        model = other_model()
        with context():
            interp.train(model, TASK, TINY)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*weights)


TASKS = {
    "lego": TASK,
    "dyck": BRACKETS,
    "template": interp.tasks.Template(),
    "text": interp.tasks.Text(corpus=CORPUS, n_ctx=8, vocab_size=300),
    "masked text": interp.tasks.Text(corpus=CORPUS, n_ctx=8, vocab_size=300, objective="masked"),
}


@pytest.mark.parametrize("name", TASKS)
def test_samplers_and_initial_weights_are_the_same_for_each_default_dtype(name):
    task, cfg = TASKS[name], interp.config_for(TASKS[name], n_layers=1, d_model=16, n_heads=2)
    draws = []
    for dtype in (torch.float32, torch.float64):
        with setting(dtype):
            batch = task.sample(32, generator=torch.Generator().manual_seed(0))
            model = hooks.make_model(cfg, seed=3)
        assert next(model.parameters()).dtype == dtype
        tensors = [value for value in vars(batch).values() if isinstance(value, torch.Tensor)]
        draws.append((tensors, [parameter.float() for parameter in model.parameters()]))
    (batch, weights), (other_batch, other_weights) = draws
    assert all(map(torch.equal, batch, other_batch))
    assert all(map(torch.allclose, weights, other_weights))


def test_a_model_in_float64_stays_so():
    model = other_model().double()
    interp.evaluate(model, TASK, n=8)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    interp.train(model, TASK, TINY)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


class Merging(nn.Linear):
    """A layer whose `train` does more than set the mode, as adapters that merge weights."""

    merged = False

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


def test_a_method_train_of_the_class_is_called_on_the_way_back():
    layer = Merging(2, 2)
    model = nn.Sequential(nn.Linear(2, 2), layer)
    with evaluation_mode(model):
        assert layer.merged
    assert not layer.merged
    assert layer.training


def test_threads_and_nested_calls_restore_the_settings_of_before():
    with setting(torch.float64):
        seen = []
        start = threading.Barrier(2)

        def run():
            start.wait()
            with default_process_state(), default_process_state():
                seen.append(torch.get_default_dtype())

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [torch.float32] * 2
        assert torch.get_default_dtype() == torch.float64


def test_two_calls_with_dropout_on_agree(models):
    model, _ = models["wrapped"]
    first, second = (interp.ablate_heads(model, TASK, n=16) for _ in range(2))
    np.testing.assert_array_equal(first.loss_rise, second.loss_rise)


def test_models_made_in_inference_mode():
    """They can be read; where gradients are needed they are refused by name."""
    with torch.inference_mode():
        model = other_model()
        bridge = bridge_of("native", d_vocab=TASK.d_vocab)
    assert interp.evaluate(model, TASK, n=16).n == 16
    assert interp.ablate_heads(model, TASK, n=16).n == 16
    for call in (
        lambda: interp.train(model, TASK, TINY),
        lambda: interp.implements(model, TASK, chain_loop(TASK), n=32),
        lambda: hooks.from_bridge(bridge),
    ):
        with pytest.raises(ValueError, match=r"made within torch\.inference_mode, so that torch computes no gradients"):
            call()


def test_frozen_models_are_trained_where_they_are_not_frozen():
    model = other_model()
    model.embed.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    interp.train(model, TASK, TINY)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "unembed.weight" in changed
    assert not any(name.startswith("embed.") for name in changed)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match=r"every parameter of the model is frozen .*model\.requires_grad_\(True\)"):
        interp.train(model, TASK, TINY)
