"""Training that computes the last layer and the read-out at the targets only, and when it does not."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import interp
from hooks import EncoderConfig, HeadPattern, Pathways, Transformer, TransformerConfig, make_model
from hooks.model.attention import FUSED_FROM
from hooks.model.blocks import BLOCKS
from interp import TrainSettings
from interp.sweeps.spec import ModelSpec
from interp.tasks import Dyck, InContextLookup, Lego, Template
from interp.training.train import Trainer, read_positions

LEGO = Lego(n_vars=3)
PLAIN = TrainSettings(steps=4, batch_size=8, eval_every=2, n_eval=8, warmup_steps=2)
AT_TARGETS = replace(PLAIN, read_at="targets")
SIZES = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": FUSED_FROM + 1, "attn_scale": 1.7}
CONFIGS = {
    **{f"block {name}": TransformerConfig(**SIZES, block=name) for name in BLOCKS},
    "causal": TransformerConfig(**SIZES, attention="causal"),
    "attention only": TransformerConfig(**SIZES, block="no_norm", d_mlp=0, attn_bias=False),
    "tied": TransformerConfig(**SIZES, block="post_ln", tied=True),
    "both identities": TransformerConfig(**SIZES, qk_identity=True, vo_identity=True),
    "hard-coded head": TransformerConfig(
        **SIZES, head_patterns=((HeadPattern(kind="association"), HeadPattern(), HeadPattern(kind="uniform")),)
    ),
    "pathways": TransformerConfig(
        **SIZES, head_patterns=Pathways(learned=4, association=4, convolution=4, kernel_width=3)
    ),
    "encoder": EncoderConfig(**SIZES, n_token_types=2, head="masked_lm", block="post_ln", pooler=True),
}


def double(cfg):
    """A model in double precision whose scalars a and b are not zero."""
    model = make_model(cfg, seed=1).double()
    for scalar in (scalar for scalars in model.identity_scalars() for scalar in scalars):
        torch.nn.init.normal_(scalar, generator=torch.Generator().manual_seed(2))
    return model


def gradients(model, logits, labels):
    model.zero_grad()
    F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("pos", [9, FUSED_FROM + 1])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_are_those_of_the_whole_pass(name, padded, pos, generator):
    """On short and on fused sequences; an example may have the same position twice."""
    model = double(CONFIGS[name])
    tokens = torch.randint(11, (3, pos), generator=generator)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, pos - 3 :] = mask[2, :2] = not padded
    read_at = torch.tensor([[5, 0, 8], [3, 3, 1], [4, 7, 2]])
    labels = torch.randint(11, read_at.shape, generator=generator)
    inputs = {"attention_mask": mask} if padded else {}
    everywhere = model(tokens, **inputs)
    expected_logits = everywhere[torch.arange(3)[:, None], read_at]
    logits = model(tokens, **inputs, read_at=read_at)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-10, atol=1e-10)
    expected = gradients(model, expected_logits, labels)
    torch.testing.assert_close(gradients(model, logits, labels), expected, rtol=1e-9, atol=1e-11)
    assert len(expected) > 5


def rows_read_out(monkeypatch, model_class=Transformer):
    """The number of positions of every read-out while gradients are on."""
    rows, read_out = [], model_class.read_out

    def counted(self, resid):
        if torch.is_grad_enabled():
            rows.append(resid.shape[1])
        return read_out(self, resid)

    monkeypatch.setattr(model_class, "read_out", counted)
    return rows


CASES = {
    "lego": (LEGO, None, {"n_layers": 2, "d_model": 16}, {}),
    "curriculum": (LEGO, None, {"n_layers": 2, "d_model": 16}, {"steps": 4, "curriculum": ((1, 1), (2, 1), (3, 2))}),
    "depths": (LEGO, None, {"n_layers": 3, "d_model": 16, "tied": True}, {"depth_range": (1, 3)}),
    "supervised": (Lego(n_vars=4, n_supervised=2), None, {"n_layers": 2, "d_model": 16}, {}),
    "template": (Template(), "template", {"n_layers": 2, "d_model": 16, "n_heads": 2}, {}),
    "lookup": (InContextLookup(n_pairs=4), None, {}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_trained_weights_are_those_of_whole_passes_up_to_rounding(case, monkeypatch):
    task, family, sizes, options = CASES[case]
    cfg = interp.config_for(task, family, **sizes)
    rows = rows_read_out(monkeypatch)
    weights, rows_of = {}, {}
    for read_at in ("all", "targets"):
        rows.clear()
        model = make_model(cfg, seed=0).double()
        history = Trainer(model, task, replace(PLAIN, read_at=read_at, **options), 3).run()
        weights[read_at] = [history[-1]["loss"], *model.state_dict().values()]
        rows_of[read_at] = list(rows)
    torch.testing.assert_close(weights["targets"], weights["all"], rtol=1e-7, atol=1e-7)
    assert len(rows_of["all"]) == len(rows_of["targets"]) == 4
    assert all(few <= many / 2 for few, many in zip(rows_of["targets"], rows_of["all"], strict=True))


class OwnLoss(Lego):
    task_name = "own_loss"

    def loss(self, logits, batch):
        return logits.square().mean()


class LookupWithOwnLoss(OwnLoss):
    task_name = "still_own_loss"


def positions_of(task, settings=AT_TARGETS, model=None):
    model = make_model(interp.config_for(task), seed=0) if model is None else model
    batch = task.sample(2, generator=torch.Generator().manual_seed(0))
    return read_positions(model, task, settings, batch)


@pytest.mark.parametrize(
    "task",
    [
        Dyck(length=10),
        OwnLoss(n_vars=3),
        LookupWithOwnLoss(n_vars=3),
        Template(templates=("aba -> a", "abb -> b"), form="next_token"),
    ],
    ids=repr,
)
def test_a_loss_that_reads_more_than_a_few_targets_has_whole_passes(task):
    assert positions_of(task) is None


def test_other_settings_and_models_have_whole_passes():
    batch = LEGO.sample(2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(positions_of(LEGO), batch.target_positions)
    assert positions_of(LEGO, PLAIN) is None
    assert positions_of(LEGO, replace(AT_TARGETS, contrastive=0.3)) is None
    for family in ("fully_connected", "lstm"):
        assert positions_of(LEGO, model=make_model(interp.config_for(LEGO, family), seed=0)) is None


@pytest.mark.parametrize("name", ["blocks.1.attn.hook_z", "hook_embed", "ln_final.hook_normalized"])
def test_with_hooks_every_position_is_computed(name):
    """A hook at a position of the last layer has an effect, and hooks see whole sequences."""
    task = Lego(n_vars=3)
    shapes = []
    model = make_model(interp.config_for(task, n_layers=2, d_model=16), seed=0)
    model.add_hook(name, lambda value, hook: shapes.append(value.shape[1]))
    trainer = Trainer(model, task, AT_TARGETS, 0)
    trainer.start()
    trainer.train_one_step()
    assert shapes == [task.n_ctx]
    model.reset_hooks()
    assert trainer.step_inputs().read_at is not None
    model.weights[0].attention.register_forward_hook(lambda module, inputs, output: None)
    assert trainer.step_inputs().read_at is None


def test_it_is_another_model_in_another_folder(tmp_path, as_a_user):
    """Earlier runs have no such setting: they keep their keys, and are not continued with it."""
    spec = ModelSpec(task=LEGO, config=interp.config_for(LEGO, n_layers=1, d_model=8), settings=PLAIN, seed=0)
    assert "read_at" not in spec.description["settings"]
    at_targets = replace(spec, settings=AT_TARGETS)
    assert at_targets.description["settings"]["read_at"] == "targets"
    assert at_targets.key != spec.key
    interp.train(make_model(spec.config, seed=0), LEGO, PLAIN, folder=tmp_path)
    with pytest.raises(ValueError, match=r"settings\.read_at is the default, not 'targets'"):
        interp.train(make_model(spec.config, seed=0), LEGO, AT_TARGETS, folder=tmp_path)
    with pytest.raises(ValueError, match=r"read_at .* 'everywhere'"):
        TrainSettings(read_at="everywhere")


def test_a_stopped_run_ends_with_the_same_bits(tmp_path):
    cfg = interp.config_for(LEGO, n_layers=2, d_model=16)
    settings = replace(AT_TARGETS, checkpoint_every=1)
    whole = interp.train(make_model(cfg, seed=0), LEGO, settings)

    def stop(record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interp.train(make_model(cfg, seed=0), LEGO, settings, folder=tmp_path, on_record=stop)
    resumed = interp.train(make_model(cfg, seed=0), LEGO, settings, folder=tmp_path)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_the_loss_at_targets_takes_only_logits_at_targets():
    batch = LEGO.sample(2, generator=torch.Generator().manual_seed(0))
    logits = torch.randn(2, LEGO.n_ctx, LEGO.d_vocab_out, generator=torch.Generator().manual_seed(1))
    at_targets = interp.tasks.base.logits_at_targets(logits, batch)
    assert torch.equal(LEGO.loss_at_targets(at_targets, batch), LEGO.loss(logits, batch))
    with pytest.raises(ValueError, match="needed are those at the targets"):
        LEGO.loss_at_targets(logits, batch)


def test_a_loss_of_next_tokens_needs_every_position():
    cfg = TransformerConfig(**SIZES, attention="causal")
    tokens, read_at = torch.ones(2, 5, dtype=torch.long), torch.tensor([[1], [4]])
    with pytest.raises(ValueError, match="return_type is 'loss', which needs every position; omit read_at"):
        Transformer(cfg)(tokens, read_at=read_at, return_type="loss")
    assert Transformer(cfg)(tokens, read_at=read_at, return_type=None) is None


@pytest.mark.usefixtures("as_a_user")
@pytest.mark.parametrize(
    ("read_at", "words"),
    [
        (torch.tensor([[0], [5]]), "read_at has positions from 0 to 5; these sequences have 0 to 4"),
        (torch.tensor([[0], [-1]]), "read_at has positions from -1 to 0"),
        (torch.tensor([[0.0], [1.0]]), "read_at is torch.float32; it must be a torch.int64 tensor"),
        ([[0], [1]], "read_at is list; it must be"),
        (torch.tensor([0, 1]), r"read_at is \(2,\); it must be \(batch, read\) with a row for each of 2 sequences"),
        (torch.tensor([[0]]), r"read_at is \(1, 1\)"),
    ],
)
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_positions_that_do_not_exist_are_refused(attention, read_at, words):
    model = Transformer(TransformerConfig(**SIZES, attention=attention))
    with pytest.raises(ValueError, match=words):
        model(torch.ones(2, 5, dtype=torch.long), read_at=read_at)
