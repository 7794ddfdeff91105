"""Effects of interventions on heads, compared with hand-written hooks; and errors of the audit."""

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import interp
from hooks import FullyConnected, Transformer
from hooks.interventions.ablation_engine import every_head
from hooks.model.attention import visible_keys
from hooks.model.layers import take
from interp.auditing.experiments import HeadExperiments
from interp.auditing.interventions import INTERVENTIONS, LABEL_TESTS, ON_ALL_HEADS, POOLED_PATTERNS
from interp.core.randomness import derived_generator
from interp.core.sample import N_REFERENCE, Sample
from interp.heads.interventions import random_weights
from interp.heads.kinds import Kind, relations_of
from interp.known_answers import HeadTruth, KnownAnswer, known_answer
from interp.known_answers.lego.variants import loop
from interp.tasks import Dyck, Lego
from interp.tasks.lego.groups import S3

SEED = 3


def diffuse():
    """An untrained model with large weights and diffuse attention; the labels of its heads are made up."""
    task = Lego(n_vars=2, sentence_format="compact")
    model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2)).double()
    with torch.no_grad():
        for block in model.stored_blocks:
            block.attention.o.weight.mul_(8)
    looks = {(0, 0): "association", (0, 1): "manipulation", (1, 0): "previous", (1, 1): None}
    heads = {head: HeadTruth(truth="misleading" if kind else "idle", looks=kind) for head, kind in looks.items()}
    return KnownAnswer(name="diffuse", model=model.eval(), task=task, heads=heads)


@pytest.fixture(scope="module", params=[pytest.param("loop", marks=pytest.mark.slow), "dyck", "same", "diffuse"])
def known(request):
    torch.set_num_threads(1)
    if request.param == "diffuse":
        return diffuse()
    if request.param == "loop":
        return loop(Lego(n_vars=2), torch.Generator().manual_seed(0))
    if request.param == "dyck":
        return known_answer("dyck stack among idle heads", 0)
    return known_answer("template same, zero decoy", 0)


@pytest.fixture(scope="module")
def batch(known):
    return known.task.sample(60, generator=torch.Generator().manual_seed(1), split="test")


@pytest.fixture(scope="module")
def experiments(known, batch):
    return HeadExperiments(known.model, Sample(known.task, batch, SEED))


@pytest.fixture(scope="module")
def labels(known):
    return {head: truth.looks for head, truth in known.heads.items() if truth.looks}


@pytest.fixture(scope="module")
def effects(experiments, labels):
    return every_effect(experiments, labels)


def every_effect(experiments, labels):
    """Effects of all interventions; labels are tested of all labelled heads."""
    return experiments.effects(ON_ALL_HEADS, labels) | experiments.effects(LABEL_TESTS, labels, heads=labels)


def right(known, batch, hooks=(), draws=20):
    """Right answers of every sequence, and where they do not depend on how rounding breaks a tie of logits."""
    with torch.no_grad():
        logits = known.model.run_with_hooks(batch.tokens, **batch.model_inputs(), fwd_hooks=list(hooks))
    logits = take(logits, batch.target_positions)
    noise, jitter = torch.Generator().manual_seed(0), 1e-9
    variants = [logits, *(logits + jitter * torch.randn(logits.shape, generator=noise) for _ in range(draws))]
    scores = np.stack([known.task.score(variant, batch).right.double().numpy() for variant in variants])
    return scores[0], (scores == scores[0]).all(0)


@pytest.fixture(scope="module")
def check(known, batch):
    """Compares losses with those under hooks, sequence by sequence; returns the fraction that could be compared."""
    clean, _ = right(known, batch, draws=0)

    def compare(hooks, losses):
        after, sure = right(known, batch, hooks)
        assert np.array_equal(losses[sure], (clean - after)[sure])
        return sure.mean()

    return compare


def output_hook(known, batch, head, method):
    """Replace the output of a head."""
    layer, index = head
    point = f"blocks.{layer}.attn.hook_z"
    other = known.task.sample(N_REFERENCE, generator=derived_generator(SEED, "reference"), split="validation")
    _, cache = known.model.run_with_cache(other.tokens, **other.model_inputs(), names_filter=[point])
    rows = torch.randint(N_REFERENCE, (len(batch),), generator=derived_generator(SEED, "replacement"))
    z = cache[point][:, :, index].detach()
    new = {"zero": torch.zeros_like(z[rows]), "mean": z.mean(0).expand(len(batch), -1, -1), "resample": z[rows]}[method]

    def edit(activation, hook):
        activation[:, :, index] = new
        return activation

    return point, edit


def pattern_hook(known, batch, head, method, kind):
    """Replace the pattern of a head, one sequence and query at a time."""
    layer, index = head
    allowed = visible_keys(known.model.cfg, batch.tokens, batch.attention_mask)
    related = torch.zeros_like(allowed) if kind is None else relations_of(known.task, batch, [kind])[kind]
    random = random_weights(allowed, SEED, 0)
    read_by = [set(batch.tokens[related[:, query]].tolist()) for query in range(related.shape[1])]

    def row(old, sample, query):
        keys, those = allowed[sample, query], related[sample, query] & allowed[sample, query]
        if kind is not None and not those.any():
            return old
        if method == "uniform":
            return keys.double() / keys.sum()
        if method == "random_rows":
            return random[sample, query] / random[sample, query].sum()
        if method == "ideal":
            return those.double() / those.sum()
        others = keys & ~those
        if method == "wrong_key":
            wrong = others.nonzero()[:, 0].tolist()
            usual = [key for key in wrong if int(batch.tokens[sample, key]) in read_by[query]]
            among = usual or [key for key in wrong if int(batch.tokens[sample, key]) in set().union(*read_by)] or wrong
            if not among:
                return old
            chosen = max(among, key=lambda key: float(random[sample, query, key]))
            return torch.nn.functional.one_hot(torch.tensor(chosen), len(keys)).double()
        if not others.any():
            return old
        return torch.where(those, old, (1 - old[those].sum()) / others.sum() * others)

    def edit(pattern, hook):
        for sample in range(len(batch)):
            for query in range(pattern.shape[2]):
                pattern[sample, index, query] = row(pattern[sample, index, query].clone(), sample, query)
        return pattern

    return f"blocks.{layer}.attn.hook_pattern", edit


@pytest.mark.parametrize("method", ["zero", "mean", "resample"])
def test_ablation_effects_equal_those_of_hooks(known, batch, check, effects, method):
    compared = []
    for place, head in enumerate(every_head(known.model)):
        hook = output_hook(known, batch, head, method)
        compared.append(check([hook], effects.drop[method][:, place]))
    assert np.mean(compared) > 0.7


@pytest.mark.parametrize("method", ["uniform", "random_rows", "ideal", "label_only_pattern", "wrong_key"])
def test_pattern_effects_equal_those_of_hooks(known, batch, check, effects, labels, method):
    compared = []
    for place, head in enumerate(every_head(known.model)):
        found = effects.drop[method][:, place]
        if method in LABEL_TESTS and head not in labels:
            assert np.isnan(found).all()
            continue
        compared.append(check([pattern_hook(known, batch, head, method, labels.get(head))], found))
    # where no two symbols are found equal, the two answers of "same" are tied
    assert np.mean(compared) > (0.5 if method == "wrong_key" else 0.7)


def test_what_stands_at_related_keys_is_replaced_by_what_stands_at_others(known, batch, check, effects, labels):
    """Values, one related key and query at a time."""
    other = known.task.sample(N_REFERENCE, generator=derived_generator(SEED, "reference"), split="validation")
    compared = []
    for place, head in enumerate(every_head(known.model)):
        found = effects.drop["resampled_values"][:, place]
        if head not in labels:
            assert np.isnan(found).all()
            continue
        layer, index = head
        names = [f"blocks.{layer}.attn.hook_{name}" for name in ("v", "pattern")]
        values = known.model.run_with_cache(other.tokens, names_filter=names[:1], **other.model_inputs())[1][names[0]]
        there = relations_of(known.task, other, [labels[head]])[labels[head]].any(1).nonzero().tolist()
        kept = torch.randperm(len(there), generator=derived_generator(SEED, "related keys", labels[head]))[:512]
        pool = [values[sample, key, index] for sample, key in sorted(there[at] for at in kept)]
        here = relations_of(known.task, batch, [labels[head]])[labels[head]]
        seen = {}

        def keep(activation, hook, seen=seen):
            seen[hook.name] = activation

        def edit(z, hook, index=index, here=here, pool=pool, seen=seen, names=names):
            v, pattern = (seen[name] for name in names)
            for sample in range(len(z)):
                drawn = torch.rand(z.shape[1], generator=derived_generator(SEED, "other keys", sample))
                for query, key in here[sample].nonzero().tolist():
                    new = pool[int(drawn[key] * len(pool))]
                    z[sample, query, index] += pattern[sample, index, query, key] * (new - v[sample, key, index])
            return z

        hooks = [*((name, keep) for name in names), (f"blocks.{layer}.attn.hook_z", edit)]
        compared.append(check(hooks, found))
    assert np.max(compared) > 0.7  # with other values, both answers of "same" are tied


def test_the_pattern_of_another_sequence_with_own_values(known, batch, check, effects, labels):
    """Rows of the first drawn sequence in which none of the own related keys is related, one query at a time."""
    other = known.task.sample(N_REFERENCE, generator=derived_generator(SEED, "reference"), split="validation")
    other = other.select(slice(POOLED_PATTERNS))
    visible = visible_keys(known.model.cfg, batch.tokens, batch.attention_mask)
    visible_there = visible_keys(known.model.cfg, other.tokens, other.attention_mask)
    compared = []
    for place, head in enumerate(every_head(known.model)):
        found = effects.drop["resampled_pattern"][:, place]
        kind = labels.get(head)
        if kind is None:
            assert np.isnan(found).all()
            continue
        here = relations_of(known.task, batch, [kind])[kind] & visible
        there = relations_of(known.task, other, [kind])[kind] & visible_there
        varies = [[not (there[:, query] & row).any(-1).all() for query, row in enumerate(rows)] for rows in here]
        described = here.any(-1)
        if torch.tensor(varies)[described].double().mean() < 0.5:
            assert np.isnan(found).all()  # the previous token is the same key everywhere
            continue
        point = f"blocks.{head[0]}.attn.hook_pattern"
        names = {"names_filter": [point], **other.model_inputs()}
        patterns = known.model.run_with_cache(other.tokens, **names)[1][point][:, head[1]]

        def edit(pattern, hook, index=head[1], here=here, there=there, patterns=patterns):
            for sample in range(len(pattern)):
                generator = derived_generator(SEED, "other patterns", sample)
                order = torch.randperm(len(there), generator=generator).tolist()
                for query in here[sample].any(-1).nonzero()[:, 0].tolist():
                    fitting = [drawn for drawn in order if not (there[drawn, query] & here[sample, query]).any()]
                    row = patterns[fitting[0], query] * visible[sample, query] if fitting else torch.zeros(1)
                    if row.sum() > 0:
                        pattern[sample, index, query] = row / row.sum()
            return pattern

        compared.append(check([(point, edit)], found))
    assert compared or known.name != "diffuse"
    assert not compared or np.max(compared) > 0.5  # without the right key, answers are often tied


def test_no_pattern_is_drawn_from_behind_the_end_of_a_sequence():
    """The previous token is the same key in all sequences that have one: shorter ones do not make it another."""
    task = Dyck(n_types=2, max_depth=4, length=12, words="complete")
    model = Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=1))
    batch = task.sample(40, generator=torch.Generator().manual_seed(1), split="test")
    assert batch.attention_mask is not None
    assert not batch.attention_mask.all()
    experiments = HeadExperiments(model, Sample(task, batch, SEED))
    labels = {(0, 0): "previous"}
    assert np.isnan(experiments.effects(("resampled_pattern",), labels, heads=labels).drop["resampled_pattern"]).all()


@pytest.mark.parametrize("known", ["diffuse"], indirect=True)
def test_a_kind_whose_keys_are_the_same_everywhere_is_not_resampled(known, effects, labels):
    """As of the previous token; an operation is at a fixed distance from the clause that it belongs to."""
    tried = np.isfinite(effects.drop["resampled_pattern"]).all((0, 2))
    assert dict(zip(every_head(known.model), tried.tolist(), strict=True)) == {
        head: labels.get(head) == "association" for head in every_head(known.model)
    }


def test_removing_a_head_costs_accuracy_only_if_it_is_needed(known, batch, effects):
    assert set(effects.drop) == set(INTERVENTIONS)
    for head, truth in known.heads.items() if known.name != "diffuse" else ():
        cost = effects.drop["mean"][:, every_head(known.model).index(head)].sum()
        assert (cost > 0) == (truth.truth in ("faithful", "hidden"))


def test_later_sequences_have_draws_of_their_own(known, batch, effects, labels):
    """The second half as another batch; which keys are usual depends on the batch."""
    half = len(batch) // 2
    rest = batch.select(torch.arange(half, len(batch)))
    later = every_effect(HeadExperiments(known.model, Sample(known.task, rest, SEED, first=half)), labels)
    for name in set(INTERVENTIONS) - {"wrong_key"}:
        np.testing.assert_array_equal(later.drop[name], effects.drop[name][half:])


def test_effects_of_sets_of_heads(known, batch, check, monkeypatch):
    heads = every_head(known.model)
    sets = [tuple(heads[:2]), (heads[0], heads[-1]), tuple(heads)]
    for most_kept in (0, 2**26):
        monkeypatch.setattr("interp.heads.experiment.MOST_KEPT", most_kept)
        found = HeadExperiments(known.model, Sample(known.task, batch, SEED)).removed(sets)
        for place, chosen in enumerate(sets):
            hooks = [output_hook(known, batch, head, "mean") for head in chosen]
            check(hooks, found[:, place])


@pytest.mark.parametrize("known", ["diffuse"], indirect=True)
def test_effect_products_are_those_of_the_logits(known, batch, experiments):
    changes = []
    with torch.no_grad():
        for head in every_head(known.model):
            hook = output_hook(known, batch, head, "mean")
            after, before = (known.model.run_with_hooks(batch.tokens, fwd_hooks=hooks) for hooks in ([hook], []))
            change = take(after - before, batch.target_positions)
            changes.append((change - change.mean(-1, keepdim=True)).flatten().numpy())
    expected = np.array(changes) @ np.array(changes).T
    assert np.abs(expected).min() > 1e-3
    np.testing.assert_allclose(experiments.effect_products(), expected, rtol=1e-6, atol=1e-9)


# errors


@dataclass(frozen=True, kw_only=True)
class Causal(Lego):
    """LEGO for a causal model."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "attention", "causal")


def untrained(task, seed=0):
    return Transformer(interp.config_for(task, n_layers=1, d_model=16, n_heads=2), seed=seed)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"alphabet": "abcd"}, r"the task has d_vocab 30, the model 8: it cannot read such sequences"),
        ({"n_vars": 1, "supervised": None}, r"the task has n_ctx 6, the model 3: it cannot read such sequences"),
        ({"group": S3}, r"the task has d_vocab_out 2, the model 6: its answers cannot be scored"),
    ],
)
def test_a_model_that_does_not_fit_raises(tiny, other, words):
    with pytest.raises(ValueError, match=f"{words}.*Use the task that the model was made for"):
        interp.audit(untrained(replace(tiny, **other)), tiny)


@pytest.mark.parametrize("verb", [interp.audit, interp.audit_probe])
def test_audits_refuse_a_model_of_more_tokens(verb):
    task, more = Dyck(n_types=2, length=6), Dyck(n_types=3, length=6)
    model = untrained(more)
    with pytest.raises(ValueError, match="the task has d_vocab_out 7, the model 9: its answers cannot be scored"):
        verb(model, task)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
def test_a_level_outside_0_and_1_raises(tiny, alpha):
    with pytest.raises(ValueError, match=f"alpha is {alpha}; it must be strictly between 0 and 1"):
        interp.audit(untrained(tiny), tiny, alpha=alpha)


@pytest.mark.parametrize("n", [-1, 0, 7])
def test_too_few_sequences_raise(tiny, n):
    with pytest.raises(ValueError, match=f"n is {n}; at least 8 sequences"):
        interp.audit(untrained(tiny), tiny, n=n)


def test_an_unknown_outcome_raises(tiny):
    with pytest.raises(ValueError, match="outcomes has '#9'; this task has #0, #1"):
        interp.audit(untrained(tiny), tiny, outcomes=["#0", "#9"])


@pytest.mark.parametrize("alpha", [0.01, 0.2])
def test_the_required_number_of_sequences_is_enough(trained, tiny, alpha):
    with pytest.raises(ValueError, match="sequences are needed to call anything harmless") as told:
        interp.audit(trained.model, tiny, n=9, outcomes=["#0"], alpha=alpha)
    needed = int(re.search(r"n is 9; (\d+) sequences", str(told.value)).group(1))
    with pytest.raises(ValueError, match=f"n is {needed - 1}; {needed} sequences"):
        interp.audit(trained.model, tiny, n=needed - 1, outcomes=["#0"], alpha=alpha)
    assert interp.audit(trained.model, tiny, n=needed, outcomes=["#0"], alpha=alpha).n == needed


def test_the_required_number_converges_if_some_sequences_lack_the_outcome():
    """The number depends on how many of the given sequences have the outcome, so the first one may be too small."""
    task = Dyck(length=4)
    model = interp.known_answers.balanced_dyck(task)
    tried = [40]
    while len(tried) < 5:
        try:
            assert interp.audit(model, task, n=tried[-1], outcomes=["hard"]).n == tried[-1]
            break
        except ValueError as told:
            tried.append(int(re.search(r"; (\d+) sequences are needed", str(told)).group(1)))
            assert tried[-1] > tried[-2]
    assert 2 <= len(tried) <= 4
    assert tried[-1] < 1.5 * tried[1]


def test_a_model_at_chance_raises_unless_allowed(tiny):
    model = untrained(tiny)
    with pytest.raises(ValueError, match=r"not above chance \(0\.50, 0\.5\d by a constant answer\).*at_chance=True"):
        interp.audit(model, tiny, n=128)
    assert "chance" in interp.audit(model, tiny, n=128, at_chance=True).warnings[0]


def test_only_the_given_outcomes_count(trained, tiny):
    result = interp.audit(trained.model, tiny, n=256, outcomes=["#1"])
    assert result.outcomes == ("#1",)
    assert result.interventions == INTERVENTIONS
    assert {len(cost.drop) for head in result.heads for cost in head.costs.values()} == {1}
    assert len(result.heads) == 4


def test_a_task_without_relations_raises(tiny, monkeypatch):
    monkeypatch.setattr("interp.heads.kinds._KINDS", {"none": Kind(lambda task, batch: None)})
    monkeypatch.setattr(Lego, "relations", lambda task, batch: {})  # its own relations are kinds too
    with pytest.raises(ValueError, match="none of the registered kinds; register one"):
        interp.audit(untrained(tiny), tiny)


def test_relations_outside_the_attention_mask_raise(monkeypatch):
    def next_token(task, batch):
        pos = batch.tokens.shape[1]
        return torch.ones(len(batch), pos, pos).triu(1).bool()

    monkeypatch.setattr("interp.heads.kinds._KINDS", {"next": Kind(next_token)})
    monkeypatch.setattr(Lego, "relations", lambda task, batch: {})
    task = Causal(n_vars=2, sentence_format="compact")
    with pytest.raises(ValueError, match=r"none of the task's relations \(next\) reaches a key .* attention is causal"):
        interp.audit(untrained(task), task)


def test_a_model_without_heads_raises(as_a_user):
    task = interp.tasks.Template()
    with pytest.raises(ValueError, match="it has no attention heads"):
        interp.audit(FullyConnected(interp.config_for(task, "fully_connected")), task)
