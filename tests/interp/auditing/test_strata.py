"""Strata: heads that are decisive in few of the sequences, and what is shown about them."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

import interp
from interp.auditing import strata as module
from interp.auditing.experiments import HeadExperiments
from interp.auditing.strata import heads_needed_in_strata, strata_of
from interp.core.sample import Sample
from interp.core.statistics import drop_interval
from interp.known_answers import known_answer
from interp.known_answers.lookup import strata as rare_letters
from interp.known_answers.lookup.task import Lookup
from interp.tasks import Lego


@dataclass(frozen=True, kw_only=True)
class RareLetters(Lookup):
    """Letters that are asked for rarely are a stratum, and so are all sequences."""

    def strata(self, batch):
        is_rare = batch.asked[:, 0] >= self.letters - self.rare_letters
        return {"rare letter": is_rare, "every sequence": torch.ones_like(is_rare)}


def rare(share, seed, monkeypatch):
    """A model whose head 0.1 alone answers queries for rare letters."""
    monkeypatch.setattr(rare_letters, "EIGHTH", (share, share))
    known = rare_letters.eighth(torch.Generator().manual_seed(seed))
    options = {field.name: getattr(known.task, field.name) for field in fields(known.task)}
    return known.model, RareLetters(**options)


def costs(result, stratum):
    return {cost.heads: cost for cost in result.strata if cost.stratum == stratum}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_head_that_is_decisive_in_one_sequence_of_twenty(monkeypatch, seed):
    model, task = rare(0.05, seed, monkeypatch)
    result = interp.audit(model, task, n=512)
    head = result.heads[1]
    assert head.place == (0, 1)
    assert head.costs["mean"].p_harmless <= 0.01
    assert (head.verdict, head.reason) == ("marginal", "needed in a stratum")
    cost = costs(result, "rare letter")[(0, 1),]
    assert cost.p_matters <= 0.01
    assert cost.n < 60
    assert cost.share < 0.12
    needed = heads_needed_in_strata(result.strata, alpha=0.01)
    strata_of_head = {place: cost.stratum for place, cost in needed.items()}
    assert strata_of_head == {(0, 0): "every sequence", (0, 1): "rare letter"}
    # The warning names head, stratum, share, loss and n; head 0.0 is needed anyway
    loss = f"{cost.drop:.2f} [{cost.low:.2f}, {cost.high:.2f}]"
    start = f"Removing head 0.1 costs {loss} of {cost.outcome} on the stratum 'rare letter' ("
    shown = [warning for warning in result.warnings if warning.startswith("Removing head 0.")]
    assert len(shown) == 1
    assert shown[0].startswith(start)
    assert f"{cost.share:.0%} of the sequences, n = {cost.n})" in shown[0]
    assert shown[0].endswith("needed there, though not on all sequences.")
    assert shown[0] in str(result)


def test_a_set_that_can_be_removed_from_most_sequences(monkeypatch):
    model, task = rare(0.05, 1, monkeypatch)
    result = interp.audit(model, task, n=256)
    assert result.largest_harmless == ((0, 1), (0, 2))
    cost = costs(result, "rare letter")[(0, 1), (0, 2)]
    assert cost.p_matters <= 0.01
    assert cost.drop == costs(result, "rare letter")[(0, 1),].drop  # head 0.2 is idle
    assert any(warning.startswith("Removing 0.1 and 0.2 together costs") for warning in result.warnings)


def test_too_few_sequences_of_a_stratum(monkeypatch):
    """A loss that is suspected names the number of sequences that would show it, and these do."""
    model, task = rare(0.05, 0, monkeypatch)
    result = interp.audit(model, task, n=256)
    cost = costs(result, "rare letter")[(0, 1),]
    assert cost.suspected
    assert cost.p_matters > 0.01
    assert cost.n_to_decide > 256
    needed = heads_needed_in_strata(result.strata, alpha=0.01)
    assert {place: cost.stratum for place, cost in needed.items()} == {(0, 0): "every sequence"}
    words = f"{cost.n_to_decide:,} sequences would decide whether that is more than {cost.threshold:.2f}."
    assert any("head 0.1" in warning and warning.endswith(words) for warning in result.warnings)
    assert any(
        warning.startswith(f"Too rare among 256 sequences to call a head harmless there: 'rare letter' (n = {cost.n});")
        for warning in result.warnings
    )
    larger = interp.audit(model, task, n=4 * cost.n_to_decide)  # the loss may be smaller in further sequences
    assert heads_needed_in_strata(larger.strata, alpha=0.01)[0, 1].stratum == "rare letter"


def test_the_stratum_of_all_sequences_gives_the_costs_of_the_audit(monkeypatch):
    model, task = rare(0.12, 0, monkeypatch)
    result = interp.audit(model, task, n=128)
    for head in result.heads:
        cost, on_all = costs(result, "every sequence")[head.place,], head.costs["mean"]
        assert (cost.drop, cost.low, cost.high, cost.n) == (*on_all.drop, *on_all.low, *on_all.high, on_all.n)
        assert (cost.clean, cost.threshold) == (result.clean[0], pytest.approx(result.threshold[0]))


def test_costs_are_those_of_the_sequences_of_the_stratum(monkeypatch):
    """Against a removal of the head on these sequences alone, with more looks than one."""
    model, task = rare(0.12, 1, monkeypatch)
    runs = []
    real = module.strata_of
    monkeypatch.setattr("interp.auditing.audit.strata_of", lambda task, r, *a: (runs.extend(r), real(task, r, *a))[1])
    result = interp.audit(model, task, n="enough", limit=512)
    assert sum(len(run.batch) for run in runs) == result.n
    head = next(head for head in result.heads if head.place == (0, 1))
    drops, totals = [], []
    for run in runs:
        rows = task.strata(run.batch)["rare letter"].nonzero()[:, 0]
        removed = run.removed([[(0, 1)]])[:, 0]
        drops.append(removed[rows])
        totals.append(run.score.total.double().numpy()[rows])
    if head.n == result.n:
        value, low, high = drop_interval(np.concatenate(drops), np.concatenate(totals))
        cost = costs(result, "rare letter")[(0, 1),]
        assert (cost.drop, cost.low, cost.high) == (value[0], low[0], high[0])


def test_heads_that_do_the_same_everywhere_give_no_warning():
    for name in ("template copy, zero decoy", "dyck stack, redundant"):
        known = known_answer(name, seed=0)
        result = interp.audit(known.model, known.task, n=128)
        assert not [warning for warning in result.warnings if "stratum" in warning]


def test_the_result_is_restored_and_has_a_table(monkeypatch, tmp_path):
    model, task = rare(0.05, 0, monkeypatch)
    result = interp.audit(model, task, n=96)
    result.save(tmp_path / "audit.json")
    restored = type(result).load(tmp_path / "audit.json")
    assert restored.strata == result.strata
    table = result.strata_to_dataframe()
    assert len(table) == len(result.strata)
    assert table["heads"].tolist()[0] == "0.0"
    assert {"stratum", "outcome", "share", "n", "clean", "drop", "low", "high", "p_matters"} <= set(table)


def test_the_default_is_a_stratum_per_answer_for_each_outcome():
    task = Lego(n_vars=3)
    batch = task.sample(20, generator=torch.Generator().manual_seed(0))
    strata = task.strata(batch)
    assert list(strata) == [f"answer {name}" for name in task.answer_names]
    assert torch.equal(sum(mask.long() for mask in strata.values()), torch.ones(20, 3, dtype=torch.long))
    for answer, mask in enumerate(strata.values()):
        assert torch.equal(mask, batch.labels == answer)
    assert interp.tasks.Dyck().strata(interp.tasks.Dyck().sample(2, generator=torch.Generator())) == {}


def test_names_that_differ_between_batches():
    class Changing(Lego):
        def strata(self, batch):
            return {f"size {len(batch)}": torch.ones(len(batch), dtype=torch.bool)}

    task = Changing(n_vars=2)
    model = interp.known_answers.lego_loop(Lego(n_vars=2))
    batches = [task.sample(n, generator=torch.Generator().manual_seed(0), split="test") for n in (8, 9)]
    runs = [HeadExperiments(model, Sample(task, batch, 0)) for batch in batches]
    with pytest.raises(
        ValueError, match=r"Changing.strata gives size 8, size 9 for some batches only; give every name"
    ):
        strata_of(task, runs, [0, 1])


@pytest.mark.parametrize(
    ("strata", "words"),
    [
        (["a"], "strata gives a list; expected: a dict of masks by name"),
        ({"a": torch.ones(16, 3, dtype=torch.bool)}, r"strata gives 'a' of shape \(16, 3\); expected: \(batch,\) or"),
        ({"a": torch.ones(16)}, r"strata gives 'a' of type torch.float32; expected: torch.bool"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_strata_of_another_shape(strata, words):
    task = type("Broken", (Lego,), {"strata": lambda self, batch: strata})(n_vars=2)
    with pytest.raises(ValueError, match=words):
        interp.check_task(task)


def test_a_model_at_chance_has_no_strata():
    known = known_answer("template copy, zero decoy", seed=0)
    model = type(known.model)(replace(known.model.cfg)).eval()
    result = interp.audit(model, known.task, n=64, at_chance=True)
    assert result.strata == ()
