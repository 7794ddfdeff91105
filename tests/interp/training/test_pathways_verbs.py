"""Models with pathways are trained, resumed, started from others, and every verb works on them or says why not."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from short_runs import Stopped, stop_at
from test_pretrained import CHAINS, WORDS, same_hidden, shaken, word_pieces
from texts import corpus

import interp
from hooks import Transformer, TransformerConfig, make_model, presets, save_huggingface
from interp.known_answers.craft.transforms import permute_heads
from interp.tasks import Dyck, Lego, Text
from interp.training.pretrained import pretrained_config
from interp.training.token_rows import rows_of

TASK = Lego(n_vars=3)
SIZES = {"d_model": 28, "n_heads": 7, "n_layers": 2, "d_mlp": 56, "head": "linear", "init": "fan_in"}


LEARNED = {"hardcode": 0, "hybrid": 3}
"""Learned heads of seven; then one each of association, [CLS] and [SEP], the rest convolutions."""
QUICK = interp.TrainSettings(steps=7, batch_size=8, warmup_steps=1, eval_every=3, n_eval=20, checkpoint_every=2)


MASKED = Text(corpus=corpus(), objective="masked", n_ctx=24, vocab_size=300)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Nothing is kept in the user's own cache."""
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def new_model(family="hybrid", task=TASK, *, seed=0, **sizes):
    return make_model(interp.config_for(task, family, **{**SIZES, **sizes}), seed=seed)


@pytest.fixture(scope="module")
def learned():
    """One model of each family that has learned the root of a chain. Do not change their weights."""
    torch.set_num_threads(1)
    settings = interp.TrainSettings(
        steps=60, batch_size=48, warmup_steps=10, learning_rate=4e-3, eval_every=60, n_eval=300
    )
    return {family: interp.train(new_model(family), TASK, settings).model for family in LEARNED}


@pytest.fixture(params=LEARNED)
def model(request, learned):
    return learned[request.param]


def heads_of(model, kind):
    """Heads of a pathway in a layer."""
    heads = list(model.cfg.pathways.heads(model.cfg.d_head, model.cfg.d_model).items())
    first = sum(n for name, n in heads[: [name for name, _ in heads].index(kind)])
    return range(first, first + dict(heads)[kind])


def test_a_task_is_learned(model):
    result = interp.evaluate(model, TASK, n=300)
    assert result.accuracy.low[0] > 0.5 == result.chance


def test_hard_coded_heads_are_classified_as_their_kind(model):
    planted = copy.deepcopy(model)
    with torch.no_grad():
        for layer, block in enumerate(planted.stored_blocks):
            block.attention.kernel.mul_(1e-3)
            block.attention.kernel[:, 10 - layer] = -1.0  # at offset 0, then at -1; the sign does not matter
    found = interp.classify_heads(planted, TASK, n=64)
    for layer, row in enumerate(found.label):
        assert [row[head] for head in heads_of(planted, "cls")] == ["broadcast"]
        assert [row[head] for head in heads_of(planted, "sep")] == ["broadcast"]
        assert {row[head] for head in heads_of(planted, "convolution")} == {["current", "previous"][layer]}
    kinds = ("association", "manipulation", "broadcast")  # of equal tokens the query itself is one, and scores as such
    found = interp.classify_heads(planted, TASK, n=64, kinds=kinds, queries="all")
    assert [found.label[layer][head] for layer in (0, 1) for head in heads_of(planted, "association")] == [
        "association"
    ] * 2


@pytest.mark.parametrize("method", ["zero", "mean", "uniform", "association"])
def test_heads_are_ablated(model, method):
    result = interp.ablate_heads(model, TASK, method=method, n=64)
    assert result.drop.shape == (14, 3)
    assert np.isfinite(result.loss_rise).all()
    assert np.abs(result.loss_rise).max() > 0.02
    changed = np.abs(result.loss_rise).max(1) > 1e-6
    # in the first layer [BOS] and [EOS], at their places in every sentence, write what they always do: their mean
    constant = [*heads_of(model, "cls"), *heads_of(model, "sep")] if method == "mean" else []
    assert [head for head in range(14) if not changed[head]] == constant
    together = interp.ablate_heads(model, TASK, method=method, n=64, heads={"both": [(0, 1), (1, 4)]})
    assert np.isfinite(together.drop).all()


@pytest.mark.parametrize("model", ["hybrid", pytest.param("hardcode", marks=pytest.mark.slow)], indirect=True)
def test_the_remaining_verbs_work(model, learned):
    audit = interp.audit(model, TASK, n=64, alpha=0.3, at_chance=True)
    assert len(audit.heads) == 14
    probe = interp.probe(model, TASK, n_train=300, n_test=200)
    assert probe.accuracy.value[-1].max() > 0.7
    found = interp.diagonals(model)
    n_learned = len(heads_of(model, "learned"))
    assert np.isfinite(found.cosine[:, :n_learned, 0]).all()
    assert np.isnan(found.cosine[:, n_learned:, 0]).all()
    assert np.isfinite(found.cosine[..., 1]).all()
    page = interp.show_attention(model, TASK, examples=2, heads=[(0, 0), (1, 6)])
    assert page.viewer == "canvas"
    assert "<html" in page.html
    other = new_model(family=next(family for family in learned if learned[family] is model), seed=1)
    variation = interp.attention_variation([model, other], TASK, resamples=10, n_baseline=10)
    fixed = [head for kind in ("association", "cls", "sep") for head in heads_of(model, kind)]
    assert not variation.by_head[..., fixed].any()  # maps of tokens alone are the same in both
    assert variation.by_head[..., heads_of(model, "convolution")].all()
    curve = interp.pruning_curve(model, TASK, by=["W_V", "heads"], fractions=(1, 0), n=32)
    assert curve.accuracy[:, 0] == pytest.approx(curve.clean)
    refused = {verb for verb, obstacle in interp.supported_verbs(model).obstacles.items() if obstacle}
    # blocks are post_ln, and heads are hard-coded
    assert refused == {
        "balance_violation",
        "edges between layers",
        "explain_attention",
        "indistinguishable",
        "logit_attribution",
    }


@pytest.mark.parametrize("association", ["mimic", "query_key"])
def test_biases_towards_equal_tokens_are_refused(model, association):
    settings = replace(QUICK, association=association)
    words = f"association is '{association}', but this model has hard-coded heads; leave it 'none'"
    with pytest.raises(ValueError, match=words):
        interp.train(copy.deepcopy(model), TASK, settings)


def test_verbs_for_learned_heads_refuse_hard_coded_ones(model, tmp_path):
    with pytest.raises(ValueError, match=r"does not fit Hugging Face's .*: head_patterns holds hard-coded heads, and"):
        save_huggingface(model, tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
    with pytest.raises(ValueError, match="heads that are hard-coded, or have no output matrix, cannot be permuted"):
        permute_heads(model, [[1, 0, 2, 3, 4, 5, 6]] * 2)
    sizes = {"d_vocab": TASK.d_vocab, "d_model": 28, "n_heads": 7, "head_patterns": model.cfg.pathways}
    one, other = (
        Transformer(TransformerConfig(**sizes, block="dyck", activation="relu"), seed=seed) for seed in (0, 1)
    )
    with pytest.raises(ValueError, match=r"the target has hard-coded heads; a pruned random network has none. Train"):
        interp.indistinguishable(one, other)


def test_a_run_that_was_killed_ends_with_the_same_weights(tmp_path):
    whole = interp.train(new_model(), TASK, QUICK).model
    with pytest.raises(Stopped):
        interp.train(new_model(), TASK, QUICK, folder=tmp_path, on_record=stop_at(6))
    resumed = interp.train(new_model(), TASK, QUICK, folder=tmp_path).model
    untrained = new_model()
    for (name, value), other, start in zip(
        whole.named_parameters(), resumed.parameters(), untrained.parameters(), strict=True
    ):
        assert torch.equal(value, other), name
        assert not torch.equal(value, start), name
    loaded = interp.train(new_model(), TASK, QUICK, folder=tmp_path).model  # finished: read from disk
    assert torch.equal(loaded.stored_blocks[0].attention.kernel, whole.stored_blocks[0].attention.kernel)


def test_text_is_trained_on_in_stages_and_in_bfloat16():
    model = new_model(task=MASKED, head="masked_lm")
    settings = interp.TrainSettings(
        curriculum=((12, 2), (24, 2)), tokens_per_step=96, eval_every=2, n_eval=16, precision="bfloat16"
    )
    run = interp.train(model, MASKED, settings)
    assert [record["stage"] for record in run.history] == [12, 24]
    assert all(np.isfinite(record["validation_loss"]) for record in run.history)


@pytest.mark.parametrize("make", [presets.hardcode, presets.hybrid])
def test_a_task_starts_from_pathways_with_its_own_markers(make):
    sizes = {"d_vocab": len(WORDS), "d_model": 28, "n_heads": 7, "n_layers": 2, "n_ctx": 30, "d_mlp": 24}
    source = shaken(make_model(make(**sizes, cls_token=WORDS.index("[CLS]"), sep_token=WORDS.index("[SEP]"))))
    source.tokenizer = word_pieces()
    model = interp.pretrained(CHAINS, source, symbols={"=": "is"})
    rows = rows_of(CHAINS, source.tokenizer, symbols={"=": "is"}, d_vocab=len(WORDS))
    assert same_hidden(model, source, rows, CHAINS)
    ids = CHAINS.vocab.ids
    meant = replace(source.cfg.pathways, cls_token=ids["[BOS]"], sep_token=ids["[EOS]"])
    assert model.cfg.pathways == meant != source.cfg.pathways
    assert model.cfg == pretrained_config(CHAINS, source.cfg)
    assert (model.cfg.head, model.cfg.n_ctx, model.cfg.d_vocab_out) == ("linear", CHAINS.n_ctx, 2)
    theirs = dict(source.named_parameters())
    for name, value in model.named_parameters():
        if name.startswith("weights."):
            assert torch.equal(value, theirs[name]), name
    assert source.cfg.pathways.cls_token == WORDS.index("[CLS]")
    run = interp.train(model, CHAINS, QUICK)
    assert run.history[-1]["steps_done"] == 7


def test_chains_start_from_a_run_on_text(tmp_path):
    source = interp.train(new_model(task=MASKED, head="masked_lm"), MASKED, QUICK, folder=tmp_path).model
    model = interp.pretrained(CHAINS, tmp_path)
    ids = MASKED.vocab.ids
    marks = {"[BOS]": "[CLS]", "[EOS]": "[SEP]"}
    rows = [ids[marks.get(name, name)] for name in CHAINS.vocab.names]
    assert same_hidden(model, source, rows, CHAINS)
    assert (model.cfg.pathways.cls_token, model.cfg.pathways.sep_token) == (1, 2)


def test_dyck_has_no_pathways():
    with pytest.raises(ValueError, match=r"no sep_token|attention is 'causal'"):
        interp.config_for(Dyck(length=8, max_depth=2), "hybrid", d_model=28, n_heads=7)
