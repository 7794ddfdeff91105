"""Pairs of prompts: against TransformerLens's helpers and hooks, of one length and of several, and what is refused."""

import numpy as np
import pytest
import torch
from texts import documents
from transformer_lens import patching

import interp
from hooks import Transformer, TransformerConfig
from interp.tasks import Prompts
from interp.tasks.text.tokenizer import train_tokenizer

D_VOCAB = 11


def model_of(n_ctx=8):
    cfg = TransformerConfig(d_vocab=D_VOCAB, d_model=16, n_heads=2, n_layers=2, n_ctx=n_ctx, attention="causal")
    return Transformer(cfg, seed=0).eval()


def pairs(n=5, *, pos=6):
    generator = torch.Generator().manual_seed(0)
    clean = torch.randint(D_VOCAB, (n, pos), generator=generator)
    corrupted = clean.clone()
    corrupted[:, 2] = (corrupted[:, 2] + 3) % D_VOCAB
    answers = torch.randint(D_VOCAB, (n,), generator=generator)
    return clean, corrupted, torch.stack([answers, (answers + 1) % D_VOCAB], 1)


def of_two_lengths():
    """Prompts of six tokens, and a pair of five and four."""
    clean, corrupted, answers = (values.tolist() for values in pairs())
    return Prompts([*clean, [1, 5, 3, 4, 2]], [*corrupted, [1, 2, 3, 4]], [*answers, [3, 4]], d_vocab=D_VOCAB)


@pytest.mark.parametrize("n", [1, 32])
def test_patches_are_those_of_transformer_lens(n):
    model, (clean, corrupted, answers) = model_of(), pairs(n)
    found = interp.patch(model, Prompts(clean, corrupted, answers, d_vocab=D_VOCAB), n="all")

    def difference(logits):
        rows = torch.arange(n)
        return (logits[rows, -1, answers[:, 1]] - logits[rows, -1, answers[:, 0]]).mean()

    with torch.no_grad():
        _, cache = model.run_with_cache(corrupted)
        theirs = patching.get_act_patch_attn_head_out_by_pos(model, clean, cache, difference)  # layer, pos, head
        theirs = theirs - difference(model(clean))
        gap = difference(model(corrupted)) - difference(model(clean))
    ours = np.array(found.effect.value[..., 0]).reshape(2, 2, 6).swapaxes(1, 2)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(found.gap.value[0], gap, atol=1e-5)


def test_a_metric_takes_the_place_of_the_difference():
    model, (clean, corrupted, answers) = model_of(), pairs()

    def answer_logit(logits, batch):
        return logits.gather(1, batch.labels)[:, 0]

    task = Prompts(clean, corrupted, answers, d_vocab=D_VOCAB, metric=answer_logit)
    found = interp.patch(model, task, site="resid", positions="all", n="all")
    with torch.no_grad():
        before, after = (model(tokens)[:, -1].gather(1, answers[:, :1]).mean() for tokens in (clean, corrupted))
    assert found.effect.value[0, 0, 0] == pytest.approx(float(after - before), abs=1e-5)
    assert "rise of the metric answer_logit; 5 pairs" in str(found)
    loss = task.score(model(clean)[:, -1:], task.every_input()).loss
    torch.testing.assert_close(loss[:, 0].mean(), -before)


@pytest.mark.parametrize("verb", ["heads", "parts", "keep"])
def test_the_counterpart_is_the_corrupted_prompt(verb):
    """Of several lengths: where the corrupted prompt is padding, the part writes what it does."""
    model, task = model_of(), of_two_lengths()
    clean = task.every_input()
    corrupted = task.counterparts(clean, generator=torch.Generator())
    _, cache = model.run_with_cache(corrupted.tokens, attention_mask=corrupted.attention_mask)
    real = corrupted.attention_mask[:, :, None]

    def replace(z, hook, heads=(1,)):
        edited = z.clone()
        for head in heads:
            edited[:, :, head] = torch.where(real, cache[hook.name][:, :, head], z[:, :, head])
        return edited

    hooks = [("blocks.0.attn.hook_z", replace)]
    if verb == "keep":  # all but no head: every head is replaced
        hooks = [(f"blocks.{layer}.attn.hook_z", lambda z, hook: replace(z, hook, (0, 1))) for layer in range(2)]
    with torch.no_grad():
        logits = model.run_with_hooks(clean.tokens, attention_mask=clean.attention_mask, fwd_hooks=hooks)
        before = model(clean.tokens, attention_mask=clean.attention_mask)
    rows = torch.arange(len(clean))[:, None]
    score, unedited = (task.score(values[rows, clean.target_positions], clean) for values in (logits, before))
    rise = float((score.loss - unedited.loss).mean())
    if verb == "keep":
        kept = interp.keep_heads(model, task, method="counterpart", orders=["ablation"], n="all", n_random=0)
        assert kept.performs.value[0, 0, 0] == pytest.approx(float(score.right.mean()))
        return
    ablate = interp.ablate_heads if verb == "heads" else interp.ablate
    options = {"heads": {"0.1": [(0, 1)]}} if verb == "heads" else {"parts": {"head": ["0.1"]}}
    found = ablate(model, task, method="counterpart", n="all", **options)
    assert found.loss_rise.value[0, 0] == pytest.approx(rise, abs=1e-5)
    assert abs(rise) > 1e-3


def test_an_edge_from_the_counterpart_is_a_path_patch():
    """The embedding into the values of a head, by hand: that head's output with values of the corrupted prompt."""
    model, (clean, corrupted, answers) = model_of(), pairs()
    task = Prompts(clean, corrupted, answers, d_vocab=D_VOCAB)
    found = interp.edges(model, task, method="counterpart", n="all")
    _, cache = model.run_with_cache(corrupted)

    def values(v, hook):
        edited = v.clone()
        edited[:, :, 1] = cache[hook.name][:, :, 1]
        return edited

    with torch.no_grad():
        logits = model.run_with_hooks(clean, fwd_hooks=[("blocks.0.attn.hook_v", values)])[:, -1:]
        rise = task.score(logits, task.every_input()).loss - task.score(model(clean)[:, -1:], task.every_input()).loss
    edge = found.names.index("embedding > 0.1 v")
    assert found.loss_rise.value[edge, 0] == pytest.approx(float(rise.mean()), abs=1e-5)


def test_texts_are_tokenized():
    tokenizer = train_tokenizer(documents().values(), 300)
    task = Prompts(["the cat sat"], ["the dog sat"], [("a", "b")], tokenizer)
    assert task.text(torch.tensor(task.clean[0])) == "the cat sat"
    assert task.d_vocab == len(task.vocab)
    assert "the cat sat" in task.description
    with pytest.raises(ValueError, match=r"answer_pairs has ' zebra', which is \d+ tokens"):
        Prompts(["the cat"], ["the dog"], [(" zebra", "b")], tokenizer)


def test_the_task_is_consistent_and_pairs_are_drawn_in_turn():
    task = of_two_lengths()
    assert "consistent" in str(interp.check_task(task))
    drawn = task.sample(13, generator=torch.Generator().manual_seed(3), split="test")
    assert sorted(drawn.pairs.bincount().tolist()) == [2, 2, 2, 2, 2, 3]
    assert drawn.is_clean.all()
    both = task.sample(12, generator=torch.Generator(), split="validation")
    assert both.is_clean.sum() == 6
    other = task.counterparts(drawn, generator=torch.Generator())
    assert torch.equal(other.labels, drawn.other_labels)
    assert task.swapped().swapped() == task
    assert Prompts(np.array([[1, 2]]), torch.tensor([[3, 2]]), np.array([[1, 3]]), d_vocab=5).corrupted == ((3, 2),)


def test_a_single_pair_is_compared_with_itself_and_its_corrupted_prompt():
    """By hand: the mean of both prompts, and what is written for the corrupted one."""
    model, clean, corrupted = model_of(), torch.tensor([[1, 2, 3]]), torch.tensor([[4, 2, 3]])
    task = Prompts(clean, corrupted, [(1, 4)], d_vocab=D_VOCAB)
    _, cache = model.run_with_cache(torch.cat([clean, corrupted]))
    z = cache["z", 1]
    for method, instead in (("mean", z.mean(0)), ("resample", z[1]), ("counterpart", z[1])):
        found = interp.ablate_heads(model, task, heads={"1.0": [(1, 0)]}, method=method, n="all")

        def replace(activation, hook, instead=instead):
            edited = activation.clone()
            edited[:, :, 0] = instead[:, 0]
            return edited

        with torch.no_grad():
            logits = model.run_with_hooks(clean, fwd_hooks=[("blocks.1.attn.hook_z", replace)])[:, -1:]
            rise = (
                task.score(logits, task.every_input()).loss - task.score(model(clean)[:, -1:], task.every_input()).loss
            )
        assert found.loss_rise.value[0, 0] == pytest.approx(float(rise), abs=1e-5)
        assert "the only input, exact" in str(found)


def test_a_single_pair_has_no_interval():
    found = interp.patch(model_of(), Prompts([[1, 2, 3]], [[4, 2, 3]], [(1, 4)], d_vocab=D_VOCAB), n=8)
    assert np.isnan(found.effect.low[np.isfinite(found.effect.value)]).all()
    assert "(no interval)" in str(found)
    assert "nan" not in str(found)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda logits, batch: logits, r"gives a tensor of shape \(5, 11\) for 5 prompts"),
        (lambda logits, batch: logits[:, 0] * float("nan"), "gives nan for a prompt"),
        (lambda logits, batch: logits[9, 0], "fails with IndexError"),
        (lambda logits, batch: 3.0, "gives 3.0 for 5 prompts"),
    ],
    ids=["vector", "nan", "raises", "number"],
)
def test_a_metric_that_fails_is_named(metric, words):
    task = Prompts(*pairs(), d_vocab=D_VOCAB, metric=metric)
    with pytest.raises(ValueError, match=f"metric {words}"):
        interp.patch(model_of(), task, n="all")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["a"], ["b"], [("x", "y")]), "clean has the text 'a'; give tokenizer"),
        (([], [], []), "clean has 0, corrupted has 0"),
        (([[1]], [[2], [3]], [(1, 2)]), "corrupted has 2"),
        (([[1]], [[2]], [(1, 1)]), r"answer_pairs\[0\] is \(1, 1\); give two different answers"),
        (([[1]], [[2]], [(1, 2, 3)]), r"answer_pairs\[0\] is \(1, 2, 3\)"),
        (([[1]], [[99]], [(1, 2)]), "corrupted has the token id 99"),
        (([[]], [[1]], [(1, 2)]), "clean has a prompt without tokens"),
        (([[1.5]], [[1]], [(1, 2)]), "token id of clean is 1.5"),
        ((3, 4, 5), "clean has 3; give a list"),
        (("ab", "cd", "ef"), "clean has 'ab'; give a list"),
    ],
)
def test_what_is_no_pair_of_prompts_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Prompts(*arguments, d_vocab=D_VOCAB)


def test_the_number_of_tokens_is_needed_without_a_tokenizer():
    with pytest.raises(ValueError, match="d_vocab is None; give the number of tokens of the model, or a tokenizer"):
        Prompts([[1]], [[2]], [(1, 2)])
