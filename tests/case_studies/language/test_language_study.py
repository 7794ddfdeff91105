"""The language study: claims are complete, variants differ only in the scalars, the study runs."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from toys import check_measured

from case_studies.frame.evidence import SIZES, Evidence
from case_studies.language import diagonals, finetuning, models, perplexity
from case_studies.language.finetuning import STRINGS, pretrained_for, untrained_for
from case_studies.language.models import PLAIN, SCALES, WITH_IDENTITIES, groups
from case_studies.language.study import STUDY
from hooks import Transformer, TransformerConfig, make_model
from interp import config_for
from interp.heads.diagonals import diagonals as diagonals_of
from interp.tasks import Corpus, Template, Text

WORDS = ["def", "return", "if", "alpha", "beta", "gamma", "(", ")", "=", "1", "2", "\n"]


def documents() -> Corpus:
    draw = random.Random(0)
    return Corpus(documents={f"{i}.py": " ".join(draw.choices(WORDS, k=300)) for i in range(40)})


@pytest.fixture
def few_words(monkeypatch, tmp_path):
    """The study with made-up documents and small models."""
    monkeypatch.setenv("UNMYOPIC_CACHE", str(tmp_path / "cache"))
    corpus = documents()
    monkeypatch.setattr(models, "Text", lambda **settings: Text(corpus=corpus, **settings))
    small = {"dimensions": {"d_model": 16, "n_heads": 2, "n_layers": 1}, "vocab_size": 330, "n_ctx": 24, "n_windows": 5}
    for size in SIZES:
        monkeypatch.setitem(SCALES, size, replace(SCALES[size], **small, steps=4, tokens_per_step=48))


def test_every_claim_is_stated_with_source_and_rule():
    for claim in STUDY.claims:
        assert claim.source.startswith(("template paper, ", "ours")), claim.id
        assert claim.statement.endswith("."), claim.id
        assert "reproduced if" in claim.rule_text, claim.id
        assert claim.quantity, claim.id


@pytest.mark.parametrize("size", SIZES)
def test_variants_differ_only_in_the_scalars(few_words, size):
    found = groups(size)
    assert all(set(claim.needs) <= set(found) for claim in STUDY.claims)
    plain, both = found[PLAIN], found[WITH_IDENTITIES]
    assert len(plain) == SCALES[size].n_seeds >= len(both) == SCALES[size].n_pairs >= 3
    for one, other in zip(plain, both, strict=False):
        assert (one.task, one.settings, one.seed) == (other.task, other.settings, other.seed)
        assert replace(other.config, qk_identity=False, vo_identity=False) == one.config != other.config
        assert one.settings.weight_decay == 0
    assert len({spec.key for spec in (*plain, *both)}) == len(plain) + len(both)
    assert finetuning.JUDGED in STRINGS[size]


@pytest.mark.parametrize("size", SIZES)
def test_every_symbol_of_the_template_tasks_has_a_token_of_its_own(size):
    special = Text(corpus=documents(), vocab_size=330, n_ctx=24).vocab.special
    assert Template(train=max(STRINGS[size])).d_vocab <= SCALES[size].vocab_size - int(special.sum())


def test_rules_say_what_had_been_seen_of_larger_models():
    for claim in STUDY.claims:
        if claim.id.endswith(".minilm"):
            continue  # of published weights
        assert "over three models of 1.1 million weights" in claim.preregistration.text, claim.id


def test_a_pretrained_model_keeps_its_weights_in_a_template_task(few_words):
    words = models.Text(n_ctx=24, vocab_size=330)
    base = Transformer(config_for(words, "gpt", d_model=16, n_heads=2, n_layers=2), seed=5)
    task = Template(train=20, validation=9, test=9)
    model, scratch = pretrained_for(task, base, words=words, seed=3), untrained_for(task, base, seed=3)
    assert model.cfg == scratch.cfg
    assert (model.cfg.d_vocab, model.cfg.d_vocab_out, model.cfg.attention) == (task.d_vocab, 1, "causal")
    for name, value in base.state_dict().items():
        if name.startswith(("weights.", "norm_final.")):
            assert torch.equal(model.state_dict()[name], value), name
    assert torch.equal(model.positions.weight, base.positions.weight[: task.n_ctx])
    assert torch.equal(model.unembed.weight, scratch.unembed.weight)
    rows = {tuple(row.tolist()): index for index, row in enumerate(base.embed.weight)}
    taken = [rows[tuple(row.tolist())] for row in model.embed.weight]
    assert len(set(taken)) == task.d_vocab
    assert not words.vocab.special[taken].any()
    other = pretrained_for(task, base, words=words, seed=4)
    assert not torch.equal(model.embed.weight, other.embed.weight)


def test_a_lower_loss_with_the_scalars_is_a_gain(few_words, monkeypatch):
    found = {PLAIN: np.full((3, 4), 2.0), WITH_IDENTITIES: np.tile([[1.5], [1.6], [1.4]], 4)}
    monkeypatch.setattr(perplexity, "_losses", lambda evidence, name: found[name])
    monkeypatch.setattr(perplexity, "_scalars", lambda evidence, spec: {"a, mean": 0.0})
    monkeypatch.setattr(perplexity, "_curves", lambda evidence: {"mark": "line"})
    evidence = Evidence(size="quick", seed=0, groups={k: tuple(v) for k, v in groups("quick").items()}, folder=Path())
    (claim,) = perplexity.CLAIMS
    said = claim.measurement(evidence)
    half = stats.t.isf(0.025, 2) * 0.1 / 3**0.5
    assert (said.value, said.low, said.high) == pytest.approx((0.5, 0.5 - half, 0.5 + half))
    assert said.numbers[f"perplexity, {PLAIN}"] == pytest.approx(np.exp(2))
    assert said.tables[0][1][1][3] == "7.39 [7.39, 7.39]"


@pytest.mark.parametrize(
    ("trained", "untrained", "hits"),
    [((2, 3, 4), (0, 0, 0), 3), ((1, 2, 4), (0, 0, 0), 2), ((2, 3, 4), (2, 3, 0), 1), ((0, 0, 0), (0, 0, 0), 0)],
)
def test_a_model_counts_if_several_heads_are_strong_and_more_than_before_training(
    few_words, monkeypatch, trained, untrained, hits
):
    """A model with one strong head, and one with as many before training, do not count."""
    strong = iter([number for pair in zip(trained, untrained, strict=True) for number in pair])

    def planted(model, *, seed):
        heads = [(0, head) for head in range(1 if model == "negated" else next(strong))]
        cells = {name: np.zeros((1, 4, 2)) for name in ("cosine", "z", "p_holm")}
        options = {"null_sd": 0.1, "largest": 1.0, "plot": lambda: {"mark": "point"}}
        return SimpleNamespace(heads=lambda matrix: heads if matrix == 1 else [], **cells, **options)

    monkeypatch.setattr(diagonals, "diagonals", planted)
    monkeypatch.setattr(Evidence, "run", lambda evidence, spec: SimpleNamespace(model=None))
    evidence = Evidence(size="quick", seed=0, groups={PLAIN: tuple(groups("quick")[PLAIN])}, folder=Path())
    monkeypatch.setattr(diagonals, "negated", lambda model: "negated")
    _, value_output = diagonals.CLAIMS
    said = value_output.measurement(evidence)
    assert said.numbers["fewest and most of these in a model"] == [1, 1]
    assert (said.value, said.n) == (pytest.approx(hits / 3), 3)
    assert said.low > 0.2 if hits == 3 else said.low < 0.5


def test_a_negated_model_has_the_opposite_diagonals():
    """A planted copy head, value times output the identity, is strong, and strong negative when negated."""
    config = TransformerConfig(d_vocab=4, n_ctx=4, d_model=16, n_heads=2, n_layers=1)
    model = make_model(config, seed=0)
    attention = model.block(0).attention
    with torch.no_grad():
        attention.o.weight[:, :8] = attention.v.weight[:8].T
    assert diagonals_of(model).heads(1) == ((0, 0),)
    opposite = diagonals.negated(model)
    assert diagonals_of(opposite).heads(1) == ()
    assert np.allclose(diagonals_of(opposite).cosine, -diagonals_of(model).cosine)
    assert diagonals_of(diagonals.negated(opposite)).heads(1) == ((0, 0),)


def test_the_whole_study_runs_on_nearly_untrained_models(few_words, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning, "STRINGS", {"quick": (8, finetuning.JUDGED)})
    monkeypatch.setattr(finetuning, "HELD_OUT", 50)
    monkeypatch.setattr(finetuning, "SETTINGS", replace(finetuning.SETTINGS, steps=2, n_eval=10, eval_every=2))
    monkeypatch.setattr(finetuning, "Template", lambda train: Template(train=min(train, 60), validation=20, test=20))
    result = replace(STUDY, groups=groups).run(folder=tmp_path, n_jobs=1)
    said = check_measured(STUDY, result)
    found = said["perplexity.gpt2"].measurement
    assert found.n == 3
    assert found.numbers["windows per model"] == 5
    assert abs(found.value) < 0.5
    untrained_loss = np.log(330)
    assert np.log(found.numbers[f"perplexity, {PLAIN}"]) == pytest.approx(untrained_loss, abs=1.5)
    for name in diagonals.MATRICES:
        measurement = said[f"diagonals.{name}.gpt2"].measurement
        assert (measurement.value, measurement.n, measurement.numbers["heads"]) == (0, 3, 6)
    page = result.page.read_text()
    assert page.count('class="verdict"') >= len(STUDY.claims)


@pytest.mark.long
def test_the_quick_study_from_the_command_line(tmp_path):
    """The README's command; only results that do not depend on the seed."""
    command = [str(Path(sys.executable).with_name("interp")), "reproduce", "language", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=3600)
    said = {claim["id"]: claim for claim in json.loads((tmp_path / "language/quick/claims.json").read_text())["claims"]}
    assert set(said) == {claim.id for claim in STUDY.claims}
    assert all(claim["verdict"] in ("reproduced", "not reproduced", "inconclusive") for claim in said.values())
    numbers = said["perplexity.gpt2"]["numbers"]
    assert numbers[f"perplexity, {PLAIN}"] < 150  # 512 tokens, so guessing evenly has 512
    assert sum(path.stat().st_size for path in (tmp_path / "language/quick").rglob("*.html")) > 50_000
