"""Claims about hard-coded attention: families differ only in their heads, measures recover known values."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lego_curves import curve, evidence_of
from scipy import stats

from case_studies.frame.evidence import Evidence
from case_studies.lego import hardcoded, pathway_models, plateau
from case_studies.lego.hardcoded import NAMES
from case_studies.lego.pathway_models import SCALES, pathway_groups
from case_studies.recipes import learned
from interp.tasks import Corpus, Text
from interp.training.pretrained import pretrained_config


@pytest.mark.parametrize("size", SCALES)
def test_families_of_a_seed_differ_only_in_pathways(size):
    found = pathway_groups(size)
    stages = {f"{stage}-{name}" for stage in ("text", "chains") for name in NAMES}
    assert set(found) == stages | {"deep-hardcode", "deep-hybrid"}
    for stage in ("text", "chains"):
        for specs in zip(*(found[f"{stage}-{name}"] for name in NAMES), strict=True):
            assert len({spec.key for spec in specs}) == 3
            assert len({spec.seed for spec in specs}) == 1
            bert, *others = specs
            for other in others:
                assert (other.task, other.settings) == (bert.task, bert.settings)
                assert replace(other.config, head_patterns=()) == bert.config
    for name in NAMES:
        for chains, text in zip(found[f"chains-{name}"], found[f"text-{name}"], strict=True):
            assert chains.pretrained is text
            assert pretrained_config(chains.task, text.config) == chains.config


def test_deep_models_have_layers_for_every_variable_and_are_pretrained_for_half_as_long():
    found = pathway_groups("standard")
    for name in ("hardcode", "hybrid"):
        for deep, chains in zip(found[f"deep-{name}"], found[f"chains-{name}"], strict=True):
            assert deep.config == replace(chains.config, n_layers=10)
            assert deep.config.n_layers > 2 * chains.task.n_vars - 3  # a loop resolves variable i at layer 2 i - 1
            assert (deep.task, deep.settings, deep.seed) == (chains.task, chains.settings, chains.seed)
            assert deep.pretrained.config.n_layers == 10
            assert 2 * deep.pretrained.settings.steps == chains.pretrained.settings.steps
    paper = pathway_groups("paper")
    assert [spec.key for spec in paper["deep-hybrid"]] == [spec.key for spec in paper["chains-hybrid"]]


@pytest.mark.parametrize("size", SCALES)
def test_windows_become_longer_during_training(size):
    spec = pathway_groups(size)["text-hybrid"][0]
    (short, first), (long, second) = spec.settings.curriculum
    assert short < long == spec.task.n_ctx
    assert spec.settings.steps == first + second
    assert 0.6 < first / spec.settings.steps < 0.8


@pytest.mark.parametrize("size", SCALES)
def test_every_family_has_the_heads_of_the_base_sizes(size):
    found = pathway_groups(size)
    kinds = {
        name: [pattern.kind for pattern in found[f"text-{name}"][0].config.patterns_of(0)]
        for name in ("hardcode", "hybrid")
    }
    assert kinds["hardcode"] == ["association", *["broadcast"] * 2, *["convolution"] * 9]
    assert kinds["hybrid"] == [*["learned"] * 6, "association", *["broadcast"] * 2, *["convolution"] * 3]


def test_paper_size_is_base_and_ready_for_a_gpu(monkeypatch, tmp_path):
    spec = pathway_groups("paper")["text-hybrid"][0]
    assert (spec.config.d_model, spec.config.n_heads, spec.config.n_layers, spec.config.block) == (
        768,
        12,
        12,
        "post_ln",
    )
    assert (spec.settings.curriculum, spec.settings.precision) == (((128, 7000), (512, 3000)), "bfloat16")
    for index in range(30):
        (tmp_path / f"{index}.txt").write_text("the " * 200 + str(index))
    monkeypatch.setenv(pathway_models.CORPUS_VARIABLE, str(tmp_path))
    assert pathway_models._corpus("paper").source["path"] == str(tmp_path)
    assert pathway_models._corpus("standard") == "python"
    asked = []
    monkeypatch.setattr(pathway_models.Corpus, "from_hub", lambda *given, **named: asked.append((given, named)))
    monkeypatch.setenv(pathway_models.CORPUS_VARIABLE, "wikimedia/wikipedia:20231101.en")
    pathway_models._corpus("paper")
    assert asked == [(("wikimedia/wikipedia",), {"config": "20231101.en", "most": pathway_models.ARTICLES})]


def made_up(monkeypatch, losses):
    """Evidence with histories of three evaluations and the given final losses."""
    groups = {
        f"text-{name}": tuple(
            SimpleNamespace(
                key=f"{name} {seed}",
                seed=seed,
                settings=SimpleNamespace(steps=300, n_eval=7, eval_every=100, curriculum=((8, 200), (16, 100))),
            )
            for seed in range(len(values))
        )
        for name, values in losses.items()
    }  # fmt: skip

    def history(self, spec):
        name, seed = spec.key.split()
        return [
            {"steps_done": step, "loss": 5.0, "validation_loss": [losses[name][int(seed)] + more]}
            for step, more in ((100, 1.0), (200, 0.5), (300, 0.0))
        ]

    monkeypatch.setattr(Evidence, "history", history)
    monkeypatch.setattr(hardcoded, "numbers_of_plateau", lambda evidence, names: {plateau.BELOW: 1.0})
    return Evidence(size="standard", seed=0, groups=groups, folder=Path())  # type: ignore[arg-type]


def test_steps_to_the_others_loss(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.0, 4.0], "bert": [2.0, 2.0, 2.0]})
    said = hardcoded.measure_steps(evidence, family="hybrid", reference="bert")
    assert said.value == pytest.approx((2 / 3 + 1 / 3 + 1) / 3)
    assert [row[2] for row in said.tables[0][1][1:]] == ["200", "100", "–"]


def test_equal_steps_have_the_interval_of_the_evaluations(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.5, 1.5], "bert": [2.0, 2.0, 2.0]})
    said = hardcoded.measure_steps(evidence, family="hybrid", reference="bert")
    half = stats.t.ppf(0.975, 2) * (100 / 300) / 12**0.5 / 3**0.5  # evaluated every 100 of 300 steps
    assert (said.value, said.low, said.high) == pytest.approx((2 / 3, 2 / 3 - half, 2 / 3 + half))


def test_loss_is_paired_by_seed(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.0, 4.0], "bert": [2.0, 1.5, 4.5]})
    given = {"hybrid": np.array([1.5, 1.0, 4.0]), "bert": np.array([2.0, 1.5, 4.6])}
    monkeypatch.setattr(hardcoded, "final_losses", lambda evidence, name: given[name])
    said = hardcoded.measure_loss_difference(evidence, family="hybrid", reference="bert")
    half = stats.t.ppf(0.975, 2) * np.std([0.5, 0.5, 0.6], ddof=1) / 3**0.5
    assert (said.value, said.low, said.high) == pytest.approx((-1.6 / 3, -1.6 / 3 - half, -1.6 / 3 + half))
    claims = {claim.id: claim for claim in hardcoded.CLAIMS}
    assert claims["hardcoded.loss-hybrid"].verdict(said) == "reproduced"
    assert claims["hardcoded.loss-hardcode"].verdict(said) == "not reproduced"
    on_plateau = replace(said, numbers={**said.numbers, plateau.BELOW: 0.4})
    for name in ("loss-hybrid", "loss-hardcode", "loss-learned", "steps", "chains-hybrid", "chains-hardcode"):
        assert claims[f"hardcoded.{name}"].verdict(on_plateau) == "inconclusive", name
        assert claims[f"hardcoded.{name}"].verdict(replace(said, low=-5)) != "inconclusive" or "chains" in name


def test_the_worst_seed_of_both_families_must_have_left_the_plateau(monkeypatch):
    losses = {"hybrid": np.array([2.0, 2.2]), "bert": np.array([4.7, 4.6])}
    monkeypatch.setattr(plateau, "final_losses", lambda evidence, name: losses[name])
    monkeypatch.setattr(plateau, "token_entropy", lambda task, *, windows, seed: 4.9)
    groups = {f"text-{name}": (SimpleNamespace(task=None),) for name in losses}
    evidence = Evidence(size="standard", seed=0, groups=groups, folder=Path())  # type: ignore[arg-type]
    assert plateau.numbers_of_plateau(evidence, ("hybrid", "bert")) == pytest.approx(
        {plateau.ENTROPY: 4.9, plateau.BELOW: 0.2}
    )


def test_entropy_of_single_tokens_is_the_loss_of_the_best_prediction_without_context():
    draw = np.random.default_rng(0)
    words = [f"{chr(97 + i)}{chr(97 + i)}" for i in range(20)]
    share = np.arange(1, 21) / 210
    documents = {f"{i}.txt": " ".join(draw.choice(words, p=share, size=3000)) for i in range(40)}
    task = Text(corpus=Corpus(documents=documents), objective="masked", n_ctx=32, vocab_size=300)
    found = plateau.token_entropy(task, windows=300, seed=0)
    batch = task.sample(2000, generator=torch.Generator().manual_seed(1), split="test")
    counts = torch.bincount(
        task.sample(4000, generator=torch.Generator().manual_seed(2)).labels.flatten(), minlength=300
    )
    frequency = (counts + 1e-9) / (counts + 1e-9).sum()
    joint = torch.zeros(300, 300, dtype=torch.float64)  # shown, right: 80 % [MASK], 10 % random, 10 % left
    ordinary = task.vocab.ordinary
    joint[ordinary] = 0.1 / len(ordinary) * frequency.double()
    joint += 0.1 * torch.diag(frequency.double())
    masks = torch.isin(batch.tokens.gather(1, batch.target_positions), ordinary, invert=True)
    shown = batch.tokens.gather(1, batch.target_positions)
    given = joint / joint.sum(1, keepdim=True)
    expected = torch.where(masks, frequency.double()[batch.labels], given[shown, batch.labels]).log().mean()
    assert found == pytest.approx(-float(expected), abs=0.03)
    without = -float(frequency.double()[batch.labels].log().mean())
    assert found < without - 0.2  # the masked position itself says something


def test_further_is_the_first_untrained_variable_of_models_that_have_learned(monkeypatch):
    found = {"deep-hybrid": [curve([[1, 1, value, 0.2]], [1, 1, 0, 0], depths=(6,)) for value in (0.7, 0.8, 0.1)]}
    evidence = evidence_of(monkeypatch, found, hardcoded)
    monkeypatch.setattr(learned, "lowest_accuracy", lambda evidence, spec: 0.6 if spec.seed == 2 else 1.0)
    monkeypatch.setattr(hardcoded, "depth_curve", lambda evidence, spec: found[spec.name][spec.seed])
    said = hardcoded.measure_further(evidence, group="deep-hybrid")
    assert (said.value, said.n) == (pytest.approx(0.75), 2)
    assert said.numbers["untrained variables, one by one"] == pytest.approx([0.75, 0.2])
    assert said.tables[1][0].startswith("Excluded: 1")
    stated = next(claim for claim in hardcoded.CLAIMS if claim.id == "hardcoded.further-hybrid")
    for low, high, verdict in ((0.61, 0.9, "reproduced"), (0.45, 0.55, "not reproduced"), (0.5, 0.7, "inconclusive")):
        assert stated.verdict(replace(said, low=low, high=high)) == verdict
    monkeypatch.setattr(learned, "lowest_accuracy", lambda evidence, spec: 0.6)
    none = hardcoded.measure_further(evidence, group="deep-hybrid")
    assert (none.n, stated.verdict(none)) == (1, "inconclusive")


def test_the_loss_chart_has_seeds_and_windows_in_its_title(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.0], "bert": [2.0, 1.5]})
    chart = hardcoded.pretraining_loss_chart(evidence).to_dict()
    seeds, windows = chart["title"]
    assert "n = 2 seeds, 7 windows" in seeds
    assert windows == "windows grow from 8 to 16 tokens at step 200"


def test_chains_are_judged_by_trained_variables(monkeypatch):
    values = {"hybrid": [1, 0.9, 0.8, 0.7, 0.6], "bert": [1, 0.5, 0.5, 0.45, 0.4]}
    found = {f"chains-{name}": [curve([given], [1, 1, 1, 0, 0], depths=(6,))] * 2 for name, given in values.items()}
    evidence = evidence_of(monkeypatch, found, hardcoded)
    monkeypatch.setattr(hardcoded, "numbers_of_plateau", lambda evidence, names: {plateau.BELOW: 0.6})
    trained = hardcoded.measure_chains(evidence, family="hybrid", reference="bert")
    assert trained.value == pytest.approx(0.35)
    assert trained.low < 0.35 < trained.high
    stated = next(claim for claim in hardcoded.CLAIMS if claim.id == "hardcoded.chains-hybrid")
    assert stated.verdict(trained) == "reproduced"


def test_share_of_needed_heads_that_are_hard_coded(monkeypatch):
    config = pathway_groups("standard")["chains-hybrid"][0].config
    essential = {(0, 0), (0, 6), (1, 7), (1, 11)}  # one of them learned
    heads = [
        SimpleNamespace(head=head, verdict="faithful", reason="needed", needed={"mean": True})
        if (layer, head) in essential
        else SimpleNamespace(head=head, verdict="idle", reason="not needed", needed={"mean": False})
        for layer in range(2)
        for head in range(12)
    ]
    result = SimpleNamespace(heads=heads)
    vocab = SimpleNamespace(names=[f"<{index}>" for index in range(100)])
    spec = SimpleNamespace(config=config, task=SimpleNamespace(vocab=vocab))
    monkeypatch.setattr(
        hardcoded, "audit_models", lambda *given, **named: [SimpleNamespace(spec=spec, result=result)] * 9
    )
    monkeypatch.setattr(hardcoded, "excluded_models", lambda evidence, groups: [("Excluded", [["seed"], [3]])])
    evidence = Evidence(size="standard", seed=0, groups={"chains-hybrid": (spec,) * 9}, folder=Path())  # type: ignore[arg-type]
    said = hardcoded.measure_written(evidence, group="chains-hybrid")
    assert (said.value, said.numbers["heads"]) == (0.75, 36)
    rows = {row[0]: row[1:] for row in said.tables[0][1]}
    assert rows["association"][rows["kind of head"].index("faithful")] == "9"
    assert rows["learned"][rows["kind of head"].index("idle")] == "99"
    assert said.tables[1][0] == "Excluded"
    half = stats.t.ppf(0.975, 8) * 0.25 / 12**0.5 / 9**0.5  # equal shares of four heads
    assert (said.low, said.high) == pytest.approx((0.75 - half, 0.75 + half))
    written = next(claim for claim in hardcoded.CLAIMS if claim.id == "hardcoded.written")
    assert written.verdict(said) == "reproduced"
    assert written.verdict(replace(said, numbers={"heads": 7})) == "inconclusive"


def test_models_of_two_cores_are_trained_on_the_standard_library():
    task = pathway_groups("standard")["text-bert"][0].task
    assert isinstance(task, Text)
    assert task.corpus.source["source"] == "python"  # type: ignore[union-attr]
    assert SCALES["standard"].seeds == 3


def test_size_quick_pretrains_none():
    assert set(pathway_groups("quick")) >= set(pathway_groups("standard"))
    assert not any(pathway_groups("quick").values())
    claims = [claim for claim in hardcoded.CLAIMS if set(claim.needs) & set(pathway_groups("standard"))]
    assert claims == list(hardcoded.CLAIMS)
    assert all("quick" not in claim.sizes and claim.sizes_reason for claim in claims)
