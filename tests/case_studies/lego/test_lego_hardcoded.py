"""Claims about hard-coded attention: families differ only in their heads, measures recover known values."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from case_studies.frame.evidence import Evidence
from case_studies.lego import hardcoded, pathway_models, plateau
from case_studies.lego.hardcoded import NAMES
from case_studies.lego.pathway_models import SCALES, pathway_groups
from interp.tasks import Corpus, Text


@pytest.mark.parametrize("size", SCALES)
def test_families_of_a_seed_differ_only_in_pathways(size):
    found = pathway_groups(size)
    assert set(found) == {f"text-{name}" for name in NAMES}
    for specs in zip(*(found[f"text-{name}"] for name in NAMES), strict=True):
        assert len({spec.key for spec in specs}) == 3
        assert len({spec.seed for spec in specs}) == 1
        bert, *others = specs
        for other in others:
            assert (other.task, other.settings) == (bert.task, bert.settings)
            assert replace(other.config, head_patterns=()) == bert.config


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


def test_loss_is_paired_by_seed(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.0, 4.0], "bert": [2.0, 1.5, 4.5]})
    given = {"hybrid": np.array([1.5, 1.0, 4.0]), "bert": np.array([2.0, 1.5, 4.6])}
    monkeypatch.setattr(hardcoded, "final_losses", lambda evidence, name: given[name])
    claims = {claim.id: claim for claim in hardcoded.CLAIMS}
    said = claims["hardcoded.loss-hybrid"].measurement(evidence)
    half = stats.t.ppf(0.975, 2) * np.std([0.5, 0.5, 0.6], ddof=1) / 3**0.5
    assert (said.value, said.low, said.high) == pytest.approx((-1.6 / 3, -1.6 / 3 - half, -1.6 / 3 + half))
    assert claims["hardcoded.loss-hybrid"].verdict(said) == "reproduced"
    assert claims["hardcoded.loss-hardcode"].verdict(said) == "not reproduced"
    on_plateau = replace(said, numbers={**said.numbers, plateau.BELOW: 0.4})
    for name in ("loss-hybrid", "loss-hardcode", "loss-learned"):
        assert claims[f"hardcoded.{name}"].verdict(on_plateau) == "inconclusive", name
        assert claims[f"hardcoded.{name}"].verdict(replace(said, low=-5)) != "inconclusive"


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


def test_the_loss_chart_has_seeds_and_windows_in_its_title(monkeypatch):
    evidence = made_up(monkeypatch, {"hybrid": [1.5, 1.0], "bert": [2.0, 1.5]})
    chart = hardcoded.pretraining_loss_chart(evidence).to_dict()
    seeds, windows = chart["title"]
    assert "n = 2 seeds, 7 windows" in seeds
    assert windows == "windows grow from 8 to 16 tokens at step 200"


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
