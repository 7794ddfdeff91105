"""Audits of a real encoder as claims: the counts of verdicts, and the task of masked tokens; here on small models."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers.models.bert.tokenization_bert import BertTokenizerFast

import interp
from case_studies.frame.evidence import Evidence
from case_studies.lego import real_audit
from case_studies.lego.real_models import TASK, real_groups
from case_studies.lego.study import STUDY
from case_studies.recipes import masked_tokens
from case_studies.recipes.masked_tokens import MaskedTokens

LETTERS = "abcdefgh"


@pytest.fixture
def letters(monkeypatch):
    """Paragraphs of letters in the place of Python's language reference, a token each."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    tokenizer = BertTokenizerFast(vocab={name: index for index, name in enumerate(names)})
    draws = torch.randint(8, (20, 40), generator=torch.Generator().manual_seed(0)).tolist()
    paragraphs = [" ".join(LETTERS[draw] for draw in row) for row in draws]
    monkeypatch.setattr(masked_tokens, "topics", {"one": "\n\n".join(paragraphs), "same": paragraphs[0]})
    monkeypatch.setattr(masked_tokens, "packaged_folder", lambda name: Path(name))
    monkeypatch.setattr(masked_tokens, "find_tokenizer", lambda folder: tokenizer)
    caches = (masked_tokens._text, masked_tokens._occurrences)
    for cached in caches:
        cached.cache_clear()
    yield paragraphs
    for cached in caches:
        cached.cache_clear()


def test_a_frequent_token_of_a_paragraph_is_masked(letters):
    task = MaskedTokens(n_answers=4, n_ctx=12)
    assert interp.check_task(task)
    batch = task.sample(200, generator=torch.Generator().manual_seed(0), split="test")
    counts = batch.labels[:, 0].bincount(minlength=4)
    assert (counts > 25).all()  # drawn uniformly
    frequent = max(LETTERS, key="".join(letters).count)
    assert "".join(letters).count(task.answer_names[0]) == "".join(letters).count(frequent)
    for tokens, label, position in zip(batch.tokens, batch.labels[:, 0], batch.target_positions[:, 0], strict=True):
        words = task.vocab.words(tokens)
        assert (words[0], words[-1], words.count("[MASK]")) == ("[CLS]", "[SEP]", 1)
        assert words[position] == "[MASK]"
        words[position] = task.answer_names[label]
        assert any(" ".join(words[1:-1]) in paragraph for paragraph in letters)


def test_marks_are_related_to_no_equal_token(letters):
    task = MaskedTokens(n_answers=4, n_ctx=12)
    batch = task.sample(8, generator=torch.Generator().manual_seed(0))
    relations = task.relations(batch)
    assert relations["special"].any(1).nonzero()[:, 1].unique().tolist() == [0, 11]
    marked = batch.tokens >= len(task.vocab) - 3
    assert not relations["same_token"].masked_select(marked[:, None].expand(-1, 12, -1)).any()
    assert relations["same_token"].any()


@pytest.fixture(scope="module")
def audited():
    known = interp.known_answers.known_answer("template copy, zero decoy", seed=0)
    return interp.audit(known.model, known.task, n=128)


def measured(result):
    (claim, _) = real_audit.CLAIMS
    readings = real_audit._readings(result, "A note.")
    return replace(claim, measure=lambda evidence: readings).measurement(SimpleNamespace(seed=0))


def test_the_share_is_of_labelled_heads_that_are_faithful(audited):
    measurement = measured(audited)
    labelled = [head for head in audited.heads if head.label not in ("unclassified", "uniform")]
    assert [head.verdict for head in audited.heads] == ["idle", "misleading", "faithful"]
    assert measurement.n == len(labelled) == 2
    assert measurement.value == 0.5
    assert measurement.numbers["labelled heads that are misleading"] == 1
    (_, every_head), (title, by_label) = measurement.tables
    assert title == "Verdicts by label"
    assert sum(int(cell) for row in by_label[1:] for cell in row[1:]) == 3
    assert len(every_head) == 1 + 3


def test_an_undecided_head_may_be_faithful_or_not(audited):
    heads = [SimpleNamespace(**vars(head)) for head in audited.heads]
    for head, record in zip(heads, audited.heads, strict=True):
        head.place, head.readable = record.place, record.readable
        head.verdict = "undecided" if head.verdict == "misleading" else head.verdict
    undecided = SimpleNamespace(**{**vars(audited), "heads": heads}, sentences=audited.sentences, of=audited.of)
    measurement = measured(undecided)
    assert (measurement.value, measurement.low, measurement.high) == (0.5, pytest.approx(0.0126, abs=1e-4), 1.0)
    assert measured(audited).high < 1


@pytest.mark.parametrize("name", ["chains", "text"])
def test_each_claim_audits_its_model(name, audited, monkeypatch, letters):
    calls = []

    def audit(model, task, **options):
        calls.append((model, task, options))
        return audited

    def classify_heads(model, task, **options):
        assert options == {"n": 256, "seed": 0}
        return Patterns()

    class Patterns:
        kinds = ("association", "manipulation")

        def heads(self, kind):
            return {"association": ((0, 1),), "manipulation": ((0, 0), (1, 1))}[kind]

    class Model:
        read_out_fit = "fitted"

    monkeypatch.setattr(real_audit, "audit", audit)
    monkeypatch.setattr(real_audit, "classify_heads", classify_heads)
    monkeypatch.setattr(real_audit, "pretrained", lambda task, source, **options: Model())
    monkeypatch.setattr(Evidence, "run", lambda self, spec: type("Run", (), {"model": spec.key}))
    claim = next(claim for claim in STUDY.claims if claim.id == f"real.audit.{name}")
    groups = {group: tuple(real_audit.audited_groups("standard")[group]) for group in claim.needs}
    measurement = claim.measurement(Evidence(size="standard", seed=0, groups=groups, folder=Path()))
    assert claim.rule.verdict(measurement) == "inconclusive"
    ((model, task, options),) = calls
    heads = [(0, 1), (0, 0), (1, 1)]
    assert options == {"heads": heads, "n": "enough", "limit": 512, "seconds": None, "seed": 0}
    if name == "chains":
        assert (model, task) == (real_groups("standard")["real-pretrained"][0].key, TASK)
    else:
        assert (type(model), task) == (Model, MaskedTokens())
