"""EAP, EAP-IG and ACDC on edges, each against its definition computed separately; statistics and claims on them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score
from tool_studies.approximations import attention_pairs, edge_claims, edge_scores
from tool_studies.approximations.edge_methods import acdc, all_edges, edge_attribution, with_separate_inputs
from tool_studies.approximations.edge_scores import ACDC, EAP, EAP_IG, EXACT, METHODS, EdgeScores
from tool_studies.approximations.removal import ModelOnBatch
from transformer_lens.tools.analysis.attribution_patching import EdgeAttributionConfig, attribution_patch

import interp
from case_studies.frame.evidence import Evidence
from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import part_points
from interp.known_answers import lego_loop
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets

TASK = Lego(n_vars=2)
LETTERS = {"query": "q", "key": "k", "value": "v"}


def tiny(*, block="pre_ln", scale=1.0):
    cfg = TransformerConfig(
        d_vocab=TASK.d_vocab, d_vocab_out=TASK.d_vocab_out, d_model=8, n_heads=2, n_layers=2, n_ctx=TASK.n_ctx,
        d_mlp=16, block=block, init="uniform",
    )  # fmt: skip
    model = Transformer(cfg, seed=0).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight *= scale
    return model


def sequences(n, seed=0):
    return TASK.sample(n, generator=torch.Generator().manual_seed(seed))


def outputs_on(model, batch, *, mean=False):
    """What each part writes on some sequences, or its mean over them."""
    _, cache = model.run_with_cache(batch.tokens)
    outputs = {name: cache[name].detach() for name in part_points(model)}
    return {name: values.mean(0, keepdim=True) if mean else values for name, values in outputs.items()}


def loss_with_embedding(model, answers, embedding):
    batch = answers.batch
    hooks = [("blocks.0.hook_resid_pre", lambda activation, hook: embedding.expand_as(activation))]
    ((_, scored),) = answers.parts(len(batch))
    with torch.no_grad():
        return float(scored.loss(logits_at_targets(model.run_with_hooks(batch.tokens, fwd_hooks=hooks), batch)))


@pytest.mark.parametrize("block", ["pre_ln", "no_norm"])
def test_eap_is_that_of_transformer_lens(block):
    """There from the other sequence to ours, with the gradient at ours: the same difference and gradient."""
    model = tiny(block=block)
    ours, other = sequences(2).select(slice(0, 1)), sequences(2).select(slice(1, 2))
    answers = ModelOnBatch(TASK, ours, torch.double)
    ((_, scored),) = answers.parts(1)
    reference = attribution_patch(
        model,
        other.tokens,
        ours.tokens,
        lambda logits: scored.loss(logits_at_targets(logits, ours)),
        EdgeAttributionConfig(granularity="edge"),
    )
    expected = dict.fromkeys(((str(sender), str(receiver)) for sender, receiver in all_edges(model, ours)), 0.0)
    for (writer, reader), score in reference.edge_scores.items():
        expected[name_of(writer), name_of(reader)] += score
    assert len(expected) == len(all_edges(model, ours))
    scores = edge_attribution(model, answers, outputs_on(model, other))
    np.testing.assert_allclose(scores, list(expected.values()), atol=1e-9)
    assert np.ptp(scores) > 1e-3


def name_of(node):
    """Our name of a node of TransformerLens."""
    if node.kind in ("embed", "logits"):
        return {"embed": "embedding", "logits": "read-out"}[node.kind]
    if node.kind in ("mlp_out", "mlp_in"):
        return f"{node.layer} MLP"
    letter = "" if node.kind == "attn_head_out" else f" {node.kind[0]}"
    return f"{node.layer}.{node.head}{letter}"


@pytest.mark.parametrize(("block", "scale"), [("pre_ln", 1.0), ("no_norm", 0.5)])
def test_eap_ig_of_the_embedding_is_complete(block, scale):
    """Along the path of the embedding, its edges add up to the change of the loss, the better the more steps."""
    model, batch = tiny(block=block, scale=scale), sequences(4)
    answers = ModelOnBatch(TASK, batch, torch.double)
    new_outputs = outputs_on(model, sequences(32, seed=1), mean=True)
    clean = outputs_on(model, batch)["blocks.0.hook_resid_pre"]
    replaced = new_outputs["blocks.0.hook_resid_pre"]
    change = loss_with_embedding(model, answers, replaced) - loss_with_embedding(model, answers, clean)
    of_embedding = [str(sender) == "embedding" for sender, _ in all_edges(model, batch)]
    errors = [
        abs(edge_attribution(model, answers, new_outputs, steps=steps)[of_embedding].sum() - change)
        for steps in (1, 6, 36)
    ]
    # The error of a sum in place of the integral falls as 1 / steps
    assert errors[2] < 0.1 * abs(change)
    assert errors[2] < 0.25 * errors[1] < 0.25 * errors[0]


def test_eap_ig_takes_gradients_at_equal_steps_that_end_at_the_model():
    model, batch, steps = tiny(), sequences(4), 3
    answers = ModelOnBatch(TASK, batch, torch.double)
    new_outputs = outputs_on(model, sequences(32, seed=1), mean=True)
    clean = outputs_on(model, batch)["blocks.0.hook_resid_pre"]
    change = new_outputs["blocks.0.hook_resid_pre"] - clean
    # Slopes of the loss along the path, by finite differences
    slopes = []
    for step in range(1, steps + 1):
        ends = [
            loss_with_embedding(model, answers, clean + (1 - step / steps + half) * change) for half in (1e-5, -1e-5)
        ]
        slopes.append((ends[0] - ends[1]) / 2e-5)
    of_embedding = [str(sender) == "embedding" for sender, _ in all_edges(model, batch)]
    scores = edge_attribution(model, answers, new_outputs, steps=steps)
    assert scores[of_embedding].sum() == pytest.approx(np.mean(slopes), rel=1e-5)


def naive_logits(separate, batch, new_outputs, removed):
    """Logits without some edges: each input takes off what removed senders wrote in this pass, and adds the mean."""
    cfg, written = separate.cfg, {}

    def write(name, new):
        def store(activation, hook):
            written[name] = new - activation

        return store

    def write_heads(layer):
        def store(z, hook):
            change = new_outputs[hook.name] - z
            for head in range(cfg.n_heads):
                written[f"{layer}.{head}"] = change[:, :, head] @ separate.blocks[layer].attn.W_O[head]

        return store

    def read(name, head=None):
        def edit(activation, hook):
            edited = activation.clone()
            part = edited if head is None else edited[:, :, head]
            for sender, receiver in removed:
                if receiver == name:
                    part += written[sender]
            return edited

        return edit

    hooks = [("blocks.0.hook_resid_pre", write("embedding", new_outputs["blocks.0.hook_resid_pre"]))]
    for layer in range(cfg.n_layers):
        for letter in "qkv":
            point = f"blocks.{layer}.attn.hook_{letter}_input"
            hooks += [(point, read(f"{layer}.{head} {letter}", head)) for head in range(cfg.n_heads)]
        hooks.append((f"blocks.{layer}.attn.hook_z", write_heads(layer)))
        hooks.append((f"blocks.{layer}.hook_mlp_in", read(f"{layer} MLP")))
        point = f"blocks.{layer}.hook_mlp_out"
        hooks.append((point, write(f"{layer} MLP", new_outputs[point])))
    hooks.append((f"blocks.{cfg.n_layers - 1}.hook_resid_post", read("read-out")))
    with torch.no_grad():
        return logits_at_targets(separate.run_with_hooks(batch.tokens, fwd_hooks=hooks), batch)


def edges_from_the_end(n_layers, n_heads):
    """Names of all edges, the read-out's first, in the order in which ACDC visits them."""
    edges, senders = [], ["embedding"]
    for layer in range(n_layers):
        for head in range(n_heads):
            edges += [(sender, f"{layer}.{head} {letter}") for letter in "qkv" for sender in senders]
        senders += [f"{layer}.{head}" for head in range(n_heads)]
        edges += [(sender, f"{layer} MLP") for sender in senders]
        senders.append(f"{layer} MLP")
    return [*edges, *((sender, "read-out") for sender in senders)][::-1]


@pytest.mark.parametrize("measure", ["loss", "divergence"])
def test_acdc_is_the_published_loop(measure):
    model, batch, thresholds = tiny(), sequences(4), (1e-2, 1e-1)
    answers = ModelOnBatch(TASK, batch, torch.double)
    new_outputs = outputs_on(model, sequences(32, seed=1), mean=True)
    separate = with_separate_inputs(model)
    clean = logits_at_targets(model(batch.tokens), batch).detach()
    audited = [TASK.outcomes.index(name) for name in TASK.audited_outcomes]

    def distance(removed):
        logits = naive_logits(separate, batch, new_outputs, removed)
        if measure == "loss":
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.labels, reduction="none")
            return float(losses[:, audited].mean())
        return float(
            torch.nn.functional.kl_div(logits.log_softmax(-1), clean.softmax(-1), reduction="none").sum(-1).mean()
        )

    # Algorithm 1: the graph H loses an edge if D(G || H without it) - D(G || H) < threshold
    visited = edges_from_the_end(2, 2)
    assert [(str(sender), str(receiver)) for sender, receiver in all_edges(model, batch)] == visited[::-1]
    expected = dict.fromkeys(visited, 0.0)
    sizes = []
    for threshold in thresholds:
        removed, current = [], distance([])
        for edge in visited:
            without = distance([*removed, edge])
            if without - current < threshold:
                removed, current = [*removed, edge], without
        sizes.append(len(visited) - len(removed))
        expected |= {edge: threshold for edge in visited if edge not in removed}
    scores = acdc(model, answers, new_outputs, thresholds=thresholds, measure=measure)
    assert scores.tolist() == [expected[edge] for edge in visited[::-1]]
    assert len(set(sizes)) > 1  # thresholds differ in what they keep


def test_plain_passes_give_the_exact_costs():
    model = tiny().float()
    result = interp.edges(model, TASK, n=32, seed=3)
    batch = interp.core.inputs.inputs_or_sample(
        TASK, 32, generator=interp.core.randomness.derived_generator(3, "edges")
    )
    changes = edge_scores.changes_of_parts(model, batch, edge_scores.means(model, TASK, batch, 3))
    separate = with_separate_inputs(model)
    clean = TASK.score(logits_at_targets(model(batch.tokens), batch), batch).loss
    for index, (sender, receiver) in enumerate(all_edges(model, batch)):
        with torch.no_grad():
            logits = edge_scores.plain_pass(separate, batch, changes, sender, receiver)
        rise = (TASK.score(logits_at_targets(logits, batch), batch).loss - clean).mean(0)
        np.testing.assert_allclose(result.loss_rise.value[index], rise.detach(), atol=1e-5)
    assert np.ptp(result.loss_rise.value) > 1e-2


@pytest.mark.slow
def test_scores_and_truths_of_a_constructed_model(monkeypatch):
    for name, value in {"SEQUENCES": 8, "FOR_PLAIN_PASSES": 32, "THRESHOLDS": (0.1,)}.items():
        monkeypatch.setattr(edge_scores, name, value)
    scores = edge_scores.score_edges(lego_loop(TASK), TASK, n=256, seed=0)
    exact = interp.edges(lego_loop(TASK), TASK, n=256)
    assert scores.needed.sum() == len(exact.needed) > 0
    assert (scores.needed == scores.needed_elsewhere)[scores.decided].all()
    assert edge_scores.aurocs([scores], EXACT) == [1.0]
    assert set(scores.scores) == set(scores.seconds) == set(METHODS)
    assert set(scores.scores[ACDC]) == {0.0, 0.1}


def planted(order, *, needed=(True, True, False, False), family="LEGO", seed=0):
    """A model of four edges, whose peers give them this order; the exact costs fall from the first on."""
    exact, needed = np.array([4.0, 3.0, 2.0, 1.0]), np.array(needed)
    return EdgeScores(
        family=family, seed=seed, scores=dict.fromkeys(METHODS, np.array(order, dtype=float)) | {EXACT: exact},
        seconds=dict.fromkeys(METHODS, 2.0) | {ACDC: 20.0}, needed=needed, decided=np.full(4, True),
        needed_elsewhere=needed,
    )  # fmt: skip


def test_statistics_of_a_model():
    draw = np.random.default_rng(0)
    scores, needed = draw.integers(6, size=40).astype(float), draw.integers(2, size=40).astype(bool)
    assert edge_scores.auroc(scores, needed) == pytest.approx(roc_auc_score(needed, scores))
    model = planted([1, 4, 2, 2])
    expected = stats.spearmanr([1, 4, 2, 2], [4, 3, 2, 1]).statistic
    assert edge_scores.rank_correlation(model, EAP) == pytest.approx(expected)
    assert edge_scores.rank_correlation(planted([1, 1, 1, 1]), EAP) == 0
    # Two places: the second edge has one, the third and fourth share the other; with all tied, each has half a place
    assert edge_scores.share_missed(np.array([1.0, 4, 2, 2]), model.needed) == pytest.approx(0.5)
    assert edge_scores.share_missed(np.ones(4), model.needed) == pytest.approx(0.5)
    assert edge_scores.share_missed(np.array([2.0, 3, 2, 1]), model.needed) == pytest.approx(0.25)
    assert edge_scores.share_missed(np.array([3.0, 4, 2, 1]), np.array([True, False, False, False])) == 1
    undecided = replace(model, decided=np.array([False, True, True, True]))
    assert edge_scores.aurocs([undecided, planted([1, 2, 3, 4], needed=[False] * 4)], EAP).tolist() == [1.0]
    assert edge_scores.aurocs([undecided], EAP, elsewhere=True).tolist() == [0.5]
    assert edge_scores.over_models(np.array([]), -1, 1).floats() == (0, -1, 1)


@pytest.fixture
def claims_on(monkeypatch):
    """Labels of all claims on some planted models."""

    def label(models):
        monkeypatch.setattr(edge_claims, "edge_scores", lambda evidence: models)
        monkeypatch.setattr(edge_claims, "excluded_models", lambda evidence, groups: [])
        evidence = Evidence(size="standard", seed=0, groups={}, folder=Path())
        measurements = {claim.id: claim.in_range(claim.measurement(evidence)) for claim in edge_claims.edge_claims()}
        verdicts = {claim.id: claim.verdict(measurements[claim.id]) for claim in edge_claims.edge_claims()}
        return measurements, verdicts

    return label


def test_claims_on_methods_that_are_right_and_wrong(claims_on):
    families = [(family, seed) for family in edge_scores.FAMILIES for seed in range(3)]
    measurements, verdicts = claims_on([planted([4, 3, 2, 1], family=family, seed=seed) for family, seed in families])
    gains = {name for name in verdicts if ".gain." in name}
    assert {name for name, verdict in verdicts.items() if verdict != "reproduced"} == gains
    assert (measurements["edges.time.trained"].value, measurements["edges.time.trained"].n) == (pytest.approx(10), 9)
    _, rows = measurements["edges.eap.need.trained"].tables[0]
    assert (rows[0], rows[-1]) == (["method", *edge_scores.FAMILIES, "all"], ["models", "3", "3", "3", "9"])
    assert [row[0] for row in rows[1:-1]] == [EXACT, EAP, EAP_IG, ACDC]
    measurements, verdicts = claims_on([planted([1, 2, 3, 4], family=family, seed=seed) for family, seed in families])
    wrong = {name for name, verdict in verdicts.items() if verdict == "not reproduced"}
    assert wrong == {name for name in verdicts if name.split(".")[2] in ("order", "need", "missed")}
    assert {verdicts[name] for name in gains} == {"reproduced"}
    assert measurements["edges.eap.order.trained"].value == -1


def test_models_are_trained_for_these_claims_alone():
    groups = edge_claims.groups("standard")
    assert {name: len(specs) for name, specs in groups.items()} == dict.fromkeys(edge_scores.FAMILIES.values(), 3)
    assert not any(edge_claims.groups("quick").values())
    assert len({spec.key for specs in groups.values() for spec in specs}) == 9


def test_heads_whose_pairs_explain_too_little_are_counted(monkeypatch):
    """A constructed model, whose pairs are few, and an untrained one whose last layer needs more than twelve."""
    task = Lego(n_vars=2, sentence_format="compact")
    untrained = Transformer(interp.config_for(task, n_layers=3, n_heads=1, d_model=16), seed=0)
    models = {"few": (lego_loop(TASK), TASK), "many": (untrained, task)}
    specs = [SimpleNamespace(key=name, task=task) for name, (_, task) in models.items()]
    monkeypatch.setattr(attention_pairs, "has_learned", lambda evidence, spec: True)
    monkeypatch.setattr(attention_pairs, "SEQUENCES", 8)
    evidence = SimpleNamespace(
        seed=0, specs=lambda group: specs, run=lambda spec: SimpleNamespace(model=models[spec.key][0])
    )
    measurement = attention_pairs.PAIRS.measurement(evidence)
    expected = []
    for model, task in models.values():
        heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
        results = [interp.explain_attention(model, task, head, n=8) for head in heads]
        expected.append(np.mean([float(result.explained.value[-1]) >= 0.9 for result in results]))
    assert expected[0] == 1 > expected[1]
    assert measurement.value == pytest.approx(np.mean(expected))
    ((_, rows),) = measurement.tables
    assert [row[0] for row in rows] == ["layer", "0", "1", "2", "all"]
    assert int(rows[-1][1]) == measurement.numbers["heads"] == sum(int(row[1]) for row in rows[1:-1])
    assert measurement.numbers["largest remainder"] < 1e-5
