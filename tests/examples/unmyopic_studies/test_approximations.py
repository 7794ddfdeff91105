"""The study of approximations: each against a computation by hand, the statistics, the causes, and a small run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from packs import write_pack
from sklearn.metrics import roc_auc_score
from tool_studies.approximations import agreement, claims, programs, scores, study, table
from tool_studies.approximations.estimates import DIRECT, LOGIT, LOSS, MASS, NORM, PATTERN, TERMS, estimate_heads
from tool_studies.approximations.removal import ModelOnBatch, answers_of, fatal_pairs, remove_heads
from tool_studies.approximations.scores import (
    CANCELLED,
    COMPILED,
    DECOY,
    EXACT,
    FLAT,
    KNOWN,
    RANGE,
    REDUNDANT,
    SATURATED,
    ModelScores,
    scores_of,
    with_truth,
)
from transformer_lens.tools.analysis.attribution_patching import attribution_patch

import interp
from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import Packs
from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import every_head
from hooks.interventions.replacements import Resample
from hooks.model.hardcoded.head_patterns import HeadPattern
from interp.core.sample import reference_batch
from interp.known_answers import read_compiled
from interp.known_answers.suite import known_answer
from interp.tasks import Dyck, Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=2)
N = 32


def tiny(*, block="no_norm", n_layers=1, d_mlp=None, **more):
    torch.manual_seed(0)
    cfg = TransformerConfig(
        d_vocab=TASK.d_vocab, d_vocab_out=TASK.d_vocab_out, d_model=8, n_heads=2, n_layers=n_layers, n_ctx=TASK.n_ctx,
        d_mlp=d_mlp, block=block, init="uniform", **more,
    )  # fmt: skip
    return Transformer(cfg).double().eval()


def exact_and_estimates(model, task=TASK, n=N):
    answers, mean = answers_of(model, task, n=n, seed=0)
    return answers, remove_heads(model, answers, mean), estimate_heads(model, answers, mean)


def scores_for(name):
    known = known_answer(name, 0)
    found, removal = scores_of(known.model, known.task, n=128, seed=0)
    return known, with_truth(found, removal, known, family=KNOWN)


@pytest.mark.parametrize("name", ["loop redundant S3 1", "dyck stack, constant", "template copy, cancelled decoys"])
def test_removal_is_that_of_ablate_heads(name):
    known = known_answer(name, 0)
    _, removal, _ = exact_and_estimates(known.model, known.task)
    found = interp.ablate_heads(known.model, known.task, method="mean", n=N, seed=0)
    kept = [found.targets.index(one) for one in known.task.audited_outcomes]
    np.testing.assert_allclose(removal.drop, found.drop[:, kept], atol=1e-12)
    np.testing.assert_allclose(removal.rise, np.nanmean(found.loss_rise[:, kept], 1), atol=1e-9)
    assert np.ptp(removal.rise) > 0.1


def test_margin_is_the_right_answer_minus_the_mean():
    batch = TASK.sample(N, generator=torch.Generator().manual_seed(0))
    answers = ModelOnBatch(TASK, batch, torch.double)
    logits = torch.randn(*batch.labels.shape, TASK.d_vocab_out, dtype=torch.double)
    right = logits.gather(2, batch.labels[..., None])[..., 0]
    kept = [TASK.outcomes.index(name) for name in TASK.audited_outcomes]
    expected = (right - logits.mean(2))[:, kept].mean()
    ((_, part),) = answers.parts(N)
    torch.testing.assert_close(part.margin(logits), expected)
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.labels, reduction="none")[:, kept].mean()
    torch.testing.assert_close(part.loss(logits), loss)


def test_margin_of_dyck_compares_only_closers():
    task = Dyck(n_types=2, max_depth=3, length=12)
    batch = task.sample(N, generator=torch.Generator().manual_seed(0))
    direction = ModelOnBatch(task, batch, torch.double).direction
    used = direction.abs().sum((0, 1)) > 0
    assert used.sum() == 2
    torch.testing.assert_close(direction.sum(-1), torch.zeros(direction.shape[:2], dtype=torch.double))


def test_margin_of_numbers_has_no_constant(tmp_path):
    write_pack(tmp_path, numerical=True)
    task = read_compiled(next(tmp_path.glob("*.json"))).task
    batch = task.sample(N, generator=torch.Generator().manual_seed(0), split="test")
    direction = ModelOnBatch(task, batch, torch.double).direction
    value = torch.tensor(task.values)[batch.labels].double() * batch.present
    centred = (value - value.sum() / batch.present.sum()) * batch.present
    torch.testing.assert_close(direction[..., 0], 2 * centred / batch.present.sum(), atol=1e-7, rtol=1e-4)


def test_gradients_are_exact_where_the_margin_is_linear_and_not_elsewhere():
    _, removal, found = exact_and_estimates(tiny(d_mlp=0))
    np.testing.assert_allclose(found[LOGIT], removal.fall, atol=1e-9)
    np.testing.assert_allclose(found[DIRECT], removal.fall, atol=1e-9)
    assert (np.abs(found[LOSS] - removal.rise) > 1e-3).all()
    _, removal, found = exact_and_estimates(tiny(d_mlp=0, n_layers=2))
    np.testing.assert_allclose(found[LOGIT][2:], removal.fall[2:], atol=1e-9)
    assert (np.abs(found[LOGIT] - removal.fall)[:2] > 1e-3).all()
    assert (np.abs(found[LOGIT] - found[DIRECT])[:2] > 1e-3).all()


def test_patching_is_the_derivative_of_a_small_removal():
    model = tiny(block="pre_ln", n_layers=2, d_mlp=16)
    answers, mean = answers_of(model, TASK, n=N, seed=0)
    found, step = estimate_heads(model, answers, mean), 1e-5
    part_way = remove_heads(model, answers, lambda layer, heads: heads.z + step * (mean(layer, heads) - heads.z))
    np.testing.assert_allclose(found[LOSS], part_way.rise / step, rtol=1e-2, atol=1e-5)
    np.testing.assert_allclose(found[LOGIT], part_way.fall / step, rtol=1e-2, atol=1e-5)
    assert (found[TERMS] >= np.abs(found[LOSS])).all()


def test_patching_is_that_of_transformer_lens():
    model = tiny(block="pre_ln", n_layers=2, d_mlp=16)
    batch = TASK.sample(2, generator=torch.Generator().manual_seed(0))
    ours, other = batch.select(slice(0, 1)), batch.select(slice(1, 2))
    answers = ModelOnBatch(TASK, ours, torch.double)
    _, cache = model.run_with_cache(other.tokens)
    outputs = [cache[f"blocks.{layer}.attn.hook_z"].detach() for layer in range(2)]
    found = estimate_heads(model, answers, Resample(outputs, torch.tensor([0])))
    ((_, part),) = answers.parts(1)
    theirs = attribution_patch(model, other.tokens, ours.tokens, lambda one: part.loss(logits_at_targets(one, ours)))
    expected = dict.fromkeys(every_head(model), 0.0)
    for node, value in theirs.node_scores.items():
        if node.kind == "attn_head_out":
            expected[node.layer, node.head] += value
    np.testing.assert_allclose(found[LOSS], list(expected.values()), atol=1e-9)
    assert np.ptp(found[LOSS]) > 1e-3


@pytest.mark.parametrize("block", ["no_norm", "pre_ln"])
def test_direct_attribution_by_hand(block):
    model = tiny(block=block, n_layers=2, d_mlp=16)
    answers, _, found = exact_and_estimates(model)
    _, cache = model.run_with_cache(answers.batch.tokens)
    _, reference = model.run_with_cache(reference_batch(TASK, 0).tokens)
    final = cache["blocks.1.hook_resid_post"]
    scale = (final.var(-1, keepdim=True, unbiased=False) + model.cfg.layer_norm_eps).sqrt()
    expected = []
    for layer, head in every_head(model):
        name = f"blocks.{layer}.attn.hook_z"
        z = cache[name][:, :, head] - reference[name][:, :, head].mean(0)
        write = z @ model.blocks[layer].attn.W_O[head]
        if block == "pre_ln":
            write = (write - write.mean(-1, keepdim=True)) / scale * model.ln_final.w
        logits = logits_at_targets(write @ model.W_U, answers.batch)
        expected.append((logits * answers.direction).sum().item())
    np.testing.assert_allclose(found[DIRECT], expected, atol=1e-9)


def test_attention_readings_by_hand():
    model = tiny(n_layers=2, d_mlp=0)
    answers, _, found = exact_and_estimates(model, n=4)
    _, cache = model.run_with_cache(answers.batch.tokens)
    mass, moved = [], []
    for layer, head in every_head(model):
        pattern, v = cache[f"blocks.{layer}.attn.hook_pattern"][:, head], cache[f"blocks.{layer}.attn.hook_v"]
        norm = (v[:, :, head] @ model.blocks[layer].attn.W_O[head]).norm(dim=-1)
        mass.append(float(np.mean([max(row) for one in pattern.tolist() for row in one])))
        moved.append((pattern * norm[:, None]).sum(-1).mean().item())
    np.testing.assert_allclose(found[MASS], mass)
    np.testing.assert_allclose(found[NORM], moved)


def test_padding_does_not_count(tmp_path):
    write_pack(tmp_path)
    known = read_compiled(next(tmp_path.glob("*.json")))
    answers, _, found = exact_and_estimates(known.model, known.task)
    mask = answers.batch.attention_mask
    _, cache = known.model.run_with_cache(answers.batch.tokens, attention_mask=mask)
    largest = cache["blocks.0.attn.hook_pattern"][:, 0].amax(-1)
    assert found[MASS][0] == pytest.approx(float(largest[mask].double().mean()))
    assert found[MASS][0] != pytest.approx(float(largest.mean()), abs=1e-3)


def test_gradient_of_the_pattern_by_finite_differences():
    model = tiny(n_layers=2, d_mlp=0)
    answers, _, found = exact_and_estimates(model, n=1)
    batch, step = answers.batch, 1e-6
    ((_, part),) = answers.parts(1)
    _, cache = model.run_with_cache(batch.tokens)
    name = "blocks.0.attn.hook_pattern"

    def loss(query, key, by):
        def edit(pattern, hook):
            pattern = pattern.clone()
            pattern[0, 1, query, key] += by
            return pattern

        logits = model.run_with_hooks(batch.tokens, fwd_hooks=[(name, edit)])
        return part.loss(logits_at_targets(logits, batch)).item()

    total = 0.0
    for query, key in np.ndindex(TASK.n_ctx, TASK.n_ctx):
        slope = (loss(query, key, step) - loss(query, key, -step)) / (2 * step)
        total += abs(float(cache[name][0, 1, query, key]) * slope)
    assert found[PATTERN][1] == pytest.approx(total, rel=1e-3)


def model_scores(values, needed, *, exact=None, idle=None, **causes):
    values, needed = np.array(values, dtype=float), np.array(needed, dtype=bool)
    exact = values if exact is None else np.array(exact, dtype=float)
    idle = ~needed if idle is None else np.array(idle, dtype=bool)
    return ModelScores(
        family="", name="", scores={LOSS: values, LOGIT: values, EXACT: exact}, needed=needed,
        decided=np.ones(len(needed), dtype=bool), idle=idle, causes={k: np.array(v) for k, v in causes.items()},
    )  # fmt: skip


def test_auroc_against_scikit_learn():
    draw = np.random.default_rng(0)
    models = [model_scores(draw.integers(5, size=n), [1, 0, *draw.integers(2, size=n - 2)]) for n in (6, 9, 14)]
    for one in models:
        assert agreement.auroc([one], LOSS).value == pytest.approx(roc_auc_score(one.needed, one.scores[LOSS]))
    pairs = [one.needed.sum() * (~one.needed).sum() for one in models]
    each = [roc_auc_score(one.needed, one.scores[LOSS]) for one in models]
    interval = agreement.auroc(models, LOSS)
    value, low, high = interval.floats()
    assert value == pytest.approx(np.average(each, weights=pairs))
    assert (low < value < high, interval.n) == (True, 3)
    open_ = replace(models[0], decided=np.arange(6) < 2)
    assert agreement.auroc([open_], LOSS).value == pytest.approx(roc_auc_score([1, 0], open_.scores[LOSS][:2]))
    empty = agreement.auroc([model_scores([1, 2], [1, 1])], LOSS)
    assert (*empty.floats(), empty.n) == (0.5, 0, 1, 0)
    assert "0.5" not in table.with_ends(empty)


def test_rank_correlation_is_within_models():
    same, reverse = (model_scores([1, 2, 3, 4], [0, 0, 0, 1], exact=one) for one in ([1, 2, 3, 4], [4, 3, 2, 1]))
    far = replace(same, scores={name: 100 * one for name, one in same.scores.items()})
    assert agreement.mean_rank_correlation([same, far], LOSS, seed=0).value == pytest.approx(1)
    assert agreement.mean_rank_correlation([same, reverse], LOSS, seed=0).floats() == pytest.approx((0, -1, 1))
    flat, few = model_scores([1, 1, 1], [0, 0, 1], exact=[1, 2, 3]), model_scores([1, 2], [0, 1])
    untouched = model_scores([1, 2, 3], [0, 0, 0], exact=[0, 0, 0])
    assert agreement.rank_correlations([flat, few, untouched], LOSS).tolist() == [0]


def test_heads_are_missed_below_the_bar_of_the_idle_ones():
    idle = [model_scores([100, *range(20)], [1, *[0] * 20]) for _ in range(5)]
    assert agreement.bar(idle, LOSS) == pytest.approx(np.percentile(np.arange(20) / 100, 95))
    small = model_scores([1, 5, 18.5, 50], [1, 1, 1, 1], exact=[9, 9, 9, 9], redundancy=[True] * 4)
    models = [*idle, replace(small, scores={**small.scores, LOSS: small.scores[LOSS] * 2})]
    wrong = agreement.wrong_share(models, LOSS, REDUNDANT)
    assert (wrong.value, wrong.n) == (0.5, 1)  # shares 0.02 and 0.1 are below 0.18, 0.37 and 1 above
    assert agreement.n_concerned(models, REDUNDANT) == 4
    false = model_scores([0, 0.1, 0.4, 1], [0, 0, 0, 1], idle=[0] * 4, **{CANCELLED: [True, True, True, False]})
    wrong = agreement.wrong_share([*idle, false], LOSS, CANCELLED)
    assert (wrong.value * 3, wrong.n) == (pytest.approx(1), 1)
    # Heads of one model are one unit: all wrong in one of two models, none in the other
    others = [
        replace(small, scores=dict.fromkeys(small.scores, np.full(4, top)) | {LOSS: values})
        for top, values in ((100.0, np.array([1.0, 1, 1, 100])), (100.0, np.array([90.0, 90, 90, 100])))
    ]
    cluster = [replace(one, causes={REDUNDANT: np.array([True, True, True, False])}) for one in others]
    of_models = agreement.wrong_share([*idle, *cluster], LOSS, REDUNDANT)
    assert (float(of_models.value), of_models.n) == (0.5, 2)
    assert of_models.high - of_models.low > 0.9  # of six heads as units: 0.12 to 0.88
    wrong = agreement.wrong_share(models, LOSS, DECOY)
    assert (*wrong.floats(), wrong.n) == (0, 0, 1, 0)


def test_all_programs_are_no_sample(monkeypatch):
    """A needed head above two of three others in one program, and above all of one in the other."""
    masks = {"idle": np.zeros(4, dtype=bool), "causes": {}, "family": COMPILED, "name": "", "decided": np.full(4, True)}
    needed = np.array([True, False, False, False])
    first = ModelScores(scores={LOSS: np.array([0.7, 1.0, 0.5, 0.0])}, needed=needed, **masks)
    second = replace(first, scores={LOSS: np.array([0.7, 0.1, 0.1, 0.1])})
    third = replace(first, needed=np.full(4, True))  # without another head, it has no pair
    monkeypatch.setattr(programs, "compiled_scores", lambda packs, size, seed: [first, second, third])
    evidence = Evidence(size="quick", seed=0, groups={}, folder=Path())
    (claim,) = (claim for claim in claims.claims(Packs()) if claim.id == "patching.compiled")
    measurement = claim.measurement(evidence)
    assert measurement.value == measurement.low == measurement.high == pytest.approx(5 / 6)
    assert (measurement.n, measurement.unit) == (2, "programs")


def test_rounding_errors_are_no_effects():
    assert scores.zero_small(np.array([1.0, 1e-7, -1e-4])).tolist() == [1, 0, -1e-4]
    assert scores.zero_small(np.array([1e-7, 0.0]), least=scores.LEAST).tolist() == [0, 0]


def test_redundant_and_cancelling_heads_of_the_suite():
    known, found = scores_for("loop redundant Z2 0")
    truth = np.array([known.heads[head].truth for head in every_head(known.model)])
    assert found.causes[REDUNDANT].tolist() == (truth == "redundant").tolist()
    assert found.needed[truth == "redundant"].all()
    assert found.causes[REDUNDANT].sum() >= 2
    assert not (found.causes[SATURATED] & found.causes[REDUNDANT]).any()
    assert agreement.wrong_share([found], EXACT, REDUNDANT).value == 1
    known, found = scores_for("loop cancelled decoys Z2 0")
    cancelled = found.causes[CANCELLED]
    assert cancelled.sum() == 2
    assert not found.needed[cancelled].any()
    assert found.decided[cancelled].all()
    assert agreement.wrong_share([found], EXACT, CANCELLED).value == 1


def test_wrong_range_and_unused_patterns_of_the_suite():
    known, found = scores_for("loop magnitude, association Z2")
    places = [head for head, one in zip(every_head(known.model), found.causes[RANGE], strict=True) if one]
    assert [known.heads[head].needed["resample"] for head in places] == [False]
    assert found.needed[found.causes[RANGE]].all()
    known, found = scores_for("loop zero decoys Z2 0")
    decoys = [head for head, one in zip(every_head(known.model), found.causes[DECOY], strict=True) if one]
    assert decoys
    assert {known.heads[head].truth for head in decoys} == {"misleading"}


def test_a_misleading_head_that_is_needed_is_found_by_removal():
    known, found = scores_for("shortcut 0")
    at = every_head(known.model).index(next(h for h, one in known.heads.items() if one.truth == "misleading"))
    assert found.needed[at]
    assert found.decided[at]
    assert not found.causes[DECOY][at]


def test_a_saturated_loss_has_no_gradient(tmp_path):
    write_pack(tmp_path)
    known = read_compiled(next(tmp_path.glob("*.json")))
    with torch.no_grad():
        known.model.unembed.weight *= 20
    found, removal = scores_of(known.model, known.task, n=64, seed=0)
    top = int(removal.rise.argmax())
    assert found.causes[SATURATED].all()
    assert found.scores[LOSS][top] < 1e-3 * removal.rise[top]
    assert found.scores[LOGIT][top] == pytest.approx(removal.fall[top], rel=1e-4)
    assert not found.causes[FLAT][top]
    assert not found.causes[RANGE][top]


def test_a_flat_network_has_no_gradient():
    known, found = scores_for("loop over two layers Z2")
    flat = [head for head, one in zip(every_head(known.model), found.causes[FLAT], strict=True) if one]
    assert flat == [(1, 0)]  # the value that it moves passes the hidden units unless it is halved
    assert agreement.wrong_share([found], LOGIT, FLAT).value == 1


def test_trained_models_by_removal_alone_and_in_pairs(monkeypatch):
    known = known_answer("loop redundant Z2 0", 0)
    spec = SimpleNamespace(key="planted", task=known.task, seed=0)
    monkeypatch.setattr(scores, "has_learned", lambda evidence, spec: True)
    evidence = SimpleNamespace(
        size="quick", seed=0, folder=Path("nowhere"), run=lambda spec: SimpleNamespace(model=known.model),
        specs=lambda group: [spec] if group == "dyck-none" else [],
    )  # fmt: skip
    (found,) = scores.trained_scores(evidence)
    truth = np.array([known.heads[head].truth for head in every_head(known.model)])
    assert (found.family, found.name) == ("Dyck", "dyck-none 0")
    assert found.causes[REDUNDANT].tolist() == (truth == "redundant").tolist()
    assert not found.decided[truth == "redundant"].any()
    assert found.needed[truth == "faithful"].all()
    assert found.idle.tolist() == np.isin(truth, ("idle", "misleading")).tolist()


def test_a_hard_coded_pattern_has_a_gradient_too():
    model = tiny(d_mlp=0, head_patterns=((HeadPattern(kind="uniform"),) * 2,))
    _, removal, found = exact_and_estimates(model)
    assert (found[PATTERN] > 1e-3).all()
    np.testing.assert_allclose(found[MASS], 1 / TASK.n_ctx)
    np.testing.assert_allclose(found[LOGIT], removal.fall, atol=1e-9)


def test_no_pair_without_two_spare_heads():
    model = tiny()
    answers, mean = answers_of(model, TASK, n=8, seed=0)
    assert not fatal_pairs(model, answers, mean, np.array([True, False])).any()


@pytest.fixture(scope="module")
def few():
    names = ("loop redundant Z2 0", "loop zero decoys Z2 0", "loop cancelled decoys Z2 0", "dyck stack, constant")
    scores.known_scores.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scores, "SUITE", dict.fromkeys(names))
        patched.setattr(scores, "EVERY", {"quick": 1})
        patched.setattr(scores, "SEQUENCES", {"quick": 64})
        yield
    scores.known_scores.cache_clear()


def without_training(folder):
    return replace(study.study(folder), groups=lambda size: dict.fromkeys(study.groups(size), ()))


def test_the_study_on_a_few_models(few, tmp_path):
    write_pack(tmp_path)
    write_pack(tmp_path, numerical=True)
    result = without_training(tmp_path).run(folder=tmp_path / "out", n_jobs=1)
    found = {one.claim.id: one for one in result.claims}
    assert found["redundancy.alone"].measurement.value == 1
    assert (found["patching.compiled"].measurement.value, found["patching.compiled"].measurement.n) == (1, 2)
    assert found["patching.trained"].verdict == "inconclusive"
    tables = dict(found["order"].measurement.tables)
    header, counts, *rows, _ = tables["Rank correlation with the exact effect; AUROC for “the head is needed”"]
    assert header == ["", KNOWN, COMPILED]
    assert counts[1].startswith("4; ")
    assert [row[0] for row in rows] == list(table.METHODS)
    assert found["attention.known"].measurement.value == pytest.approx(
        agreement.auroc(scores.known_scores("quick", 0), MASS).value
    )
    assert "Attribution patching misses redundant heads." in result.page.read_text()


def test_without_packs_only_their_claims_are_left_out(few, tmp_path, capsys):
    result = without_training(tmp_path / "nothing").run(folder=tmp_path, n_jobs=1)
    not_measured = [result for result in result.claims if result.measurement is None and "quick" in result.claim.sizes]
    assert [result.claim.id for result in not_measured] == ["order", "patching.compiled"]
    assert all("give their folder with --packs" in result.note for result in not_measured)
    assert "2 of 29 claims are left out: It reads packs" in capsys.readouterr().out
    evidence = Evidence(size="quick", seed=0, groups=dict.fromkeys(study.groups("quick"), ()), folder=tmp_path)
    assert list(table.families(evidence, Packs(tmp_path / "nothing"))) == [KNOWN]
    assert len(claims.claims(Packs(tmp_path))) == 14
