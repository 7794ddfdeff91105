"""An intervention of one's own: one class, in every verb that replaces parts, on every kind of model."""

import numpy as np
import pytest
import torch
from own_models import MAPS, PlainModel, own_model, transformer

import hooks
import interp
from hooks.model.layers import take
from interp.core.randomness import derived_generator
from interp.core.sample import reference_batch
from interp.heads.interventions import BUILT_IN
from interp.tasks import Lego

TASK = Lego(n_vars=2, sentence_format="compact", alphabet="abcd")
N = 24
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}


class Noise(interp.Intervention):
    """Noise of the part's own mean and variance."""

    name, draws = "noise", True

    def new_output(self, output, reference):
        samples = reference.samples()
        return samples.mean(0) + samples.std(0) * reference.normal()


class SameMean(interp.Intervention):
    """The mean, written by a user."""

    name = "same mean"

    def new_output(self, output, reference):
        return reference.samples().mean(0, keepdim=True)


class Half(interp.Intervention):
    """Half of what the part writes."""

    name = "half"

    def new_output(self, output, reference):
        return output / 2


def plain():
    return PlainModel(transformer(TASK).cfg).eval()


MODELS = {
    "native": lambda: transformer(TASK),
    "b": lambda: transformer(TASK, vo_identity=True),
    "bridge": lambda: hooks.from_bridge(own_model(transformer(TASK))),
    "module": lambda: hooks.from_module(plain(), untrained=plain, **NAMES),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.mark.parametrize("n", [N, "all"])
def test_noise_runs_in_every_verb(model, n, monkeypatch):
    monkeypatch.setattr("interp.core.inputs.MOST_PAIRS", 128)
    ablated = interp.ablate_heads(model, TASK, method=Noise(), n=n)
    assert ablated.method == "noise"
    assert np.abs(ablated.loss_rise.value).max() > 1e-4
    assert ablated.drop.exact == (n == "all")
    sufficiency = interp.keep_heads(model, TASK, method=Noise(), orders=["ablation"], n=n, n_random=0)
    assert sufficiency.method == "noise"
    result = interp.audit(model, TASK, n=n if n == "all" else 64, at_chance=True, interventions=[Noise()])
    assert result.interventions[-1] == "noise"
    assert all("noise" in head.costs for head in result.heads)
    assert np.isfinite(result.to_dataframe()["noise"]).all()
    if interp.supported_verbs(model).obstacles["edges"]:
        with pytest.raises(ValueError, match="edges does not accept"):
            interp.edges(model, TASK, method=Noise(), n=n)
    else:
        assert np.abs(interp.edges(model, TASK, method=Noise(), n=n).loss_rise.value).max() > 1e-4


def test_noise_is_what_hooks_by_hand_give():
    model = transformer(TASK)
    batch = TASK.sample(N, generator=derived_generator(0, "ablate"), split="test")
    _, cache = model.run_with_cache(reference_batch(TASK, 0).tokens)
    rises = interp.ablate_heads(model, TASK, method=Noise(), n=N).loss_rise.value
    for layer, head in np.ndindex(2, 2):
        name = f"blocks.{layer}.attn.hook_z"
        numbers = torch.stack(
            [
                torch.randn(cache[name].shape[1:], generator=derived_generator(0, "normal", name, row))
                for row in range(N)
            ]
        )
        new = cache[name].mean(0) + cache[name].std(0) * numbers

        def edit(z, hook, new=new, head=head):
            z = z.clone()
            z[:, :, head] = new[:, :, head]
            return z

        losses = []
        for fwd_hooks in ([], [(name, edit)]):
            logits = model.run_with_hooks(batch.tokens, fwd_hooks=fwd_hooks)
            score = TASK.score(
                logits.gather(1, batch.target_positions[..., None].expand(-1, -1, logits.shape[-1])), batch
            )
            losses.append(score.loss.sum(0) / score.total.sum(0))
        expected = (losses[1] - losses[0]).detach().numpy()
        np.testing.assert_allclose(rises[2 * layer + head], expected, atol=1e-5)


def test_ones_own_mean_is_ours(model):
    own, ours = (interp.ablate_heads(model, TASK, method=method, n=N) for method in (SameMean(), "mean"))
    np.testing.assert_allclose(own.loss_rise.value, ours.loss_rise.value, atol=1e-5)
    if not interp.supported_verbs(model).obstacles["edges"]:
        own, ours = (interp.edges(model, TASK, method=method, n=N) for method in (SameMean(), "mean"))
        np.testing.assert_allclose(own.loss_rise.value, ours.loss_rise.value, atol=1e-5)


def test_an_intervention_sees_what_is_written_under_earlier_edits():
    """Half of a head in a set is half of what it writes there, not in the clean pass."""
    model = transformer(TASK)
    batch = TASK.sample(N, generator=derived_generator(0, "ablate"), split="test")
    sets = {"both": [(0, 0), (1, 1)]}

    def halve(head):
        def edit(z, hook):
            z = z.clone()
            z[:, :, head] /= 2
            return z

        return edit

    fwd_hooks = [("blocks.0.attn.hook_z", halve(0)), ("blocks.1.attn.hook_z", halve(1))]
    losses = []
    for chosen in ([], fwd_hooks):
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=chosen)
        score = TASK.score(take(logits, batch.target_positions), batch)
        losses.append((score.loss.sum(0) / score.total.sum(0)).detach().numpy())
    found = interp.ablate_heads(model, TASK, heads=sets, method=Half(), n=N).loss_rise.value[0]
    np.testing.assert_allclose(found, losses[1] - losses[0], atol=1e-5)


def test_circuits_carry_on_with_the_intervention_of_their_edges():
    task = Lego(n_vars=2)
    model = interp.known_answers.lego_loop(task)
    own = interp.edges(model, task, method=SameMean(), n=64).circuit(n=32)
    ours = interp.edges(model, task, n=64).circuit(n=32)
    assert (own.in_circuit == ours.in_circuit).all()
    assert own.method == "same mean"


def test_no_verdict_depends_on_further_interventions():
    answer = interp.known_answers.known_answer("template copy, zero decoy", 0)
    plain = interp.audit(answer.model, answer.task, n=128)
    further = interp.audit(answer.model, answer.task, n=128, interventions=[Noise(), Half()])
    assert [head.verdict for head in plain.heads] == [head.verdict for head in further.heads]
    for before, after in zip(plain.heads, further.heads, strict=True):
        assert {name: after.costs[name].drop for name in before.costs} == {
            name: cost.drop for name, cost in before.costs.items()
        }


def test_random_numbers_do_not_depend_on_chunks(monkeypatch):
    model = transformer(TASK)
    whole = interp.ablate_heads(model, TASK, method=Noise(), n=N)
    monkeypatch.setattr("interp.heads.experiment.TOKENS_PER_CHUNK", 20)
    np.testing.assert_allclose(
        interp.ablate_heads(model, TASK, method=Noise(), n=N).loss_rise.value, whole.loss_rise.value, atol=1e-5
    )
    assert not np.allclose(interp.ablate_heads(model, TASK, method=Noise(), n=N, seed=1).loss_rise, whole.loss_rise)


class Unnamed(interp.Intervention):
    def new_output(self, output, reference):
        return output


class Mean(Unnamed):
    name = "mean"


class OfAKind(Unnamed):
    name = "association"


class Wrong(interp.Intervention):
    name = "wrong"

    def __init__(self, value):
        self.value = value

    def new_output(self, output, reference):
        return self.value(output)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Unnamed(), "Unnamed without a name"),
        (Mean(), "the name 'mean', which is one of ours"),
        (OfAKind(), "the name 'association', which is one of ours"),
        (Wrong(lambda z: None), r"'wrong' returned None for blocks.0.attn.hook_z; .* the shape \(24, "),
        (Wrong(lambda z: z.sum(-1)), r"'wrong' returned numbers of shape \(24, "),
        (Wrong(lambda z: z[:, :1, :1, :2]), "'wrong' returned numbers of shape"),
        (Wrong(lambda z: z > 0), "'wrong' returned numbers of shape"),
    ],
)
def test_errors(method, words):
    with pytest.raises(ValueError, match=words):
        interp.ablate_heads(transformer(TASK), TASK, method=method, n=N)


@pytest.mark.parametrize(
    ("interventions", "words"),
    [
        ([Noise(), Noise()], "the name 'noise', which is one of ours"),
        ([Unnamed()], "interventions is a Unnamed without a name"),
        ([Wrong(lambda z: z)], None),
    ],
)
def test_interventions_of_an_audit(interventions, words):
    if words is None:
        result = interp.audit(transformer(TASK), TASK, n=64, at_chance=True, interventions=interventions)
        assert all(np.abs(head.costs["wrong"].drop).max() < 1e-9 for head in result.heads)
        return
    with pytest.raises(ValueError, match=words):
        interp.audit(transformer(TASK), TASK, n=64, at_chance=True, interventions=interventions)


def test_patterns_have_no_edges(as_a_user):
    with pytest.raises(
        ValueError, match=r"method is uniform, which only heads have; choose one of zero, mean, resample"
    ):
        interp.edges(transformer(TASK), TASK, method=BUILT_IN["uniform"], n=N)
