"""Known answers for LEGO: the truth about each head, compared with interventions."""

import pytest
import torch
from known_truth import check_labels, check_truth
from sampled import sampled
from scoring import correct

import interp
from interp.heads.kinds import relations_of
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.transforms import permute_heads, randomise, reordered
from interp.known_answers.lego.shortcut import COUNT, ELSEWHERE, lego_shortcut
from interp.known_answers.lego.variants import _destinations, decoys, detour, loop, random_task, redundant, shortcut
from interp.tasks import Lego
from interp.tasks.lego.groups import S3, cyclic

TASK = Lego(n_vars=2, alphabet="abcdefghijklmnop")
OTHER = Lego(n_vars=3, group=cyclic(3), alphabet="abcdefgh")
MAKERS = {
    "loop": lambda task, generator: loop(task, generator, idle=1, untie=True),
    "redundant": lambda task, generator: redundant(task, generator, idle=1),
    "zero": lambda task, generator: decoys(task, generator, values="zero", idle=1),
    "constant": lambda task, generator: decoys(task, generator, values="constant", idle=1),
    "cancelled": lambda task, generator: decoys(task, generator, values="cancelled", idle=1),
    "detour": lambda task, generator: detour(task, generator, idle=1),
    "shortcut": lambda task, generator: shortcut(task, generator, idle=2),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(task, n=60):
    return task.sample(n, generator=seeded(), split="test")


def drops(answer: KnownAnswer, heads="each", method="mean", n=32) -> dict:
    """The worst drop over targets, by set of heads."""
    result = interp.ablate_heads(answer.model, answer.task, heads=heads, method=method, n=n)
    return {tuple(chosen): drop.max() for chosen, drop in zip(result.heads, abs(result.drop), strict=True)}


def heads_that_are(answer: KnownAnswer, *truths: str) -> list:
    return [head for head, truth in answer.heads.items() if truth.truth in truths]


def check(answer: KnownAnswer, n: int) -> None:
    """Accuracy, labels, and what interventions cost, against what the known answer says."""
    right = interp.evaluate(answer.model, answer.task, n=100).accuracy
    assert right[-1] == 1
    assert answer.name.startswith("shortcut") or (right == 1).all()
    check_labels(answer, n=32)
    check_truth(answer, n=n)


@pytest.mark.parametrize(
    "name", sampled(("loop", "zero", "constant", "cancelled", "shortcut"), ("constant", "shortcut"))
)
def test_the_truth_about_each_head_is_what_interventions_find(name):
    check(randomise(MAKERS[name](TASK, seeded(1)), seeded(2), rotate=True), n=48)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redundant", "detour"])
def test_the_truth_over_another_group_and_a_longer_chain(name):
    check(MAKERS[name](OTHER, seeded(3)), n=64)


def test_faithful_heads_act_through_their_pattern():
    answer = loop(OTHER, seeded())
    for kind in ("association", "manipulation"):
        chosen = [head for head in heads_that_are(answer, "faithful") if answer.heads[head].looks == kind]
        evened, ideal = drops(answer, method="uniform"), drops(answer, method=kind)
        for head in chosen:
            assert evened[(head,)] > 0.15
            assert ideal[(head,)] == 0


def test_every_other_layer_of_a_head_is_faithful():
    answer = loop(OTHER, seeded())
    truths = [[answer.heads[layer, head].truth for head in range(2)] for layer in range(5)]
    assert truths == [["misleading", "faithful"], ["faithful", "misleading"]] * 2 + [["misleading", "faithful"]]


def test_values_are_readable_from_the_stated_layer():
    """From that layer on the value is in a register; before, the stream does not depend on it."""
    answer, batch = detour(OTHER, seeded(), idle=1), batch_of(OTHER, 200)
    _, cache = answer.model.run_with_cache(batch.tokens)
    for index, target in enumerate(OTHER.targets):
        positions, label = batch.target_positions[:, index], batch.labels[:, index]
        for depth in range(answer.model.cfg.n_layers + 1):
            name = "blocks.0.hook_resid_pre" if depth == 0 else f"blocks.{depth - 1}.hook_resid_post"
            stream = cache[name][torch.arange(len(positions)), positions]
            weights = torch.linalg.lstsq(stream, torch.eye(3, dtype=torch.float64)[label], driver="gelsd").solution
            right = ((stream @ weights).argmax(-1) == label).double().mean()
            assert right == 1 if depth >= answer.readable[target] else right < 0.8, (target, depth)


@pytest.mark.parametrize("n_vars", range(2, 7))
def test_the_shortcut_predicts_the_last_variable_and_no_other(n_vars):
    task, n = Lego(n_vars=n_vars), 400
    model, batch = lego_shortcut(task), task.sample(n, generator=seeded())
    logits, cache = model.run_with_cache(batch.tokens)
    right = correct(task, logits, batch)
    assert right[:, -1].all()
    assert (abs(right[:, :-1].sum(0) - n / 2) < 4 * (n / 4) ** 0.5).all()
    target_probabilities = logits.gather(1, batch.target_positions[..., None].expand(-1, -1, 2)).softmax(-1)
    assert target_probabilities[:, -1].amax(-1).min() > 0.9999
    assert target_probabilities[:, :-1].max() < 0.51
    even = cache["blocks.0.attn.hook_pattern"][:, COUNT]
    torch.testing.assert_close(even, torch.full_like(even, 1 / task.n_ctx), atol=1e-12, rtol=0)


def test_the_association_head_of_the_shortcut_does_not_act_through_its_pattern():
    """Only rows without a related key matter; on the others any pattern gives the same accuracy."""
    task, batch = TASK, batch_of(TASK)
    model = lego_shortcut(task)
    related = relations_of(task, batch, ["association"])["association"]
    has_some = related.any(-1, keepdim=True)
    ideal = related / related.sum(-1, keepdim=True).clamp_min(1)
    accuracy = {}
    for name, rows, new in (
        ("evened", has_some, torch.full_like(ideal, 1 / task.n_ctx)),
        ("ideal", has_some, ideal),
        ("evened elsewhere", ~has_some, torch.full_like(ideal, 1 / task.n_ctx)),
    ):

        def edit(pattern, hook, rows=rows, new=new):
            pattern = pattern.clone()
            pattern[:, ELSEWHERE] = torch.where(rows, new.double(), pattern[:, ELSEWHERE])
            return pattern

        logits = model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.0.attn.hook_pattern", edit)])
        accuracy[name] = correct(task, logits, batch)[:, -1].double().mean()
    assert accuracy["evened"] == accuracy["ideal"] == 1
    assert accuracy["evened elsewhere"] < 0.8


def test_the_shortcut_needs_signs_and_the_format_of_the_paper():
    with pytest.raises(ValueError, match="group='S3'; only for signs"):
        lego_shortcut(Lego(n_vars=2, group=S3))
    with pytest.raises(ValueError, match="sentence_format='compact'"):
        lego_shortcut(Lego(n_vars=2, sentence_format="compact"))
    with pytest.raises(ValueError, match="n_vars is 1"):
        shortcut(Lego(n_vars=1), seeded())


@pytest.mark.parametrize("values", ["zero", "constant"])
def test_decoys_write_no_information(values):
    answer = decoys(TASK, seeded(), values=values)
    ours = [head for head, truth in answer.heads.items() if head[1] == 2 and truth.truth == "misleading"]
    assert len(ours) == 1
    ((layer, head),) = ours
    name = f"blocks.{layer}.attn.hook_z"
    handed_on = answer.model.run_with_cache(batch_of(TASK).tokens, names_filter=name)[1][name][:, :, head]
    assert (handed_on.amax((0, 1)) - handed_on.amin((0, 1))).max() < 1e-12
    assert (handed_on.abs().max() > 0) == (values == "constant")


def test_the_detour_avoids_relations():
    for seed in range(5):
        places = _destinations(OTHER, seeded(seed))
        assert sorted(places.tolist()) == list(range(OTHER.n_ctx))
        variables = torch.arange(1, OTHER.n_ctx - 1, OTHER.clause_length)
        roles = (places[variables] - 1) % OTHER.clause_length
        assert not ((variables - 1) // 5 == (places[variables] - 1) // 5).any()
        assert set(roles.tolist()) <= {1, 4}  # "=" and ",": no variable, operation or operand


def test_the_truth_follows_permuted_heads():
    answer = redundant(TASK, seeded(), idle=1)
    order = [3, 2, 0, 1]  # first the idle head, then the second association head, ...
    permute_heads(answer.model, [order])
    moved = reordered(answer, [order])
    for layer in range(3):
        for new, old in enumerate(order):
            assert moved.heads[layer, new].truth == answer.heads[layer, old].truth
            assert moved.heads[layer, new].looks == answer.heads[layer, old].looks
    assert answer.heads[1, 0].partners == ((1, 2),)
    assert moved.heads[1, 2].partners == ((1, 1),)
    assert moved.heads[1, 1].partners == ((1, 2),)


@pytest.mark.parametrize("rotate", [False, True])
def test_randomised_models_are_seeded_and_compute_the_same(rotate):
    answer = decoys(TASK, seeded(), values="cancelled")
    tokens, weights = batch_of(TASK, 8).tokens, answer.model.block(0).attention.q.weight.clone()
    before = answer.model(tokens)
    first, same, another = (randomise(answer, seeded(seed), rotate=rotate) for seed in (0, 0, 1))
    for randomised in (first, another):
        torch.testing.assert_close(randomised.model(tokens), before, atol=1e-6, rtol=0)
        assert sorted(truth.truth for truth in randomised.heads.values()) == sorted(
            t.truth for t in answer.heads.values()
        )
    torch.testing.assert_close(first.model.block(0).attention.q.weight, same.model.block(0).attention.q.weight)
    assert first.heads == same.heads != another.heads
    assert torch.equal(answer.model.block(0).attention.q.weight, weights)  # the one that was given stays


def test_a_stream_that_cannot_be_rotated_raises():
    from interp.known_answers import stack_dyck
    from interp.tasks import Dyck

    task = Dyck(n_types=2, max_depth=2)
    answer = KnownAnswer(name="stack", model=stack_dyck(task), task=task, heads={})
    with pytest.raises(ValueError, match=r"block='minimal'.*set rotate=False"):
        randomise(answer, seeded(), rotate=True)
    assert randomise(answer, seeded(), rotate=False).name == "stack, randomised"


def test_random_tasks_vary():
    tasks = [random_task(seeded(seed)) for seed in range(40)]
    assert {task.n_vars for task in tasks} == {2, 3, 4}
    assert {task.group.name for task in tasks} == {"Z2", "Z3", "S3"}
    assert min(len(task.alphabet) for task in tasks if task.n_vars > 2) < 12
    assert random_task(seeded(), group=S3).group == S3
