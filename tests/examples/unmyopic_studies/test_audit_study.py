"""The audit study: claims, groups of models, rules, and measures on known answers."""

from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tool_studies.audit import controls, trained
from tool_studies.audit.study import STUDY
from tool_studies.audited_models import AUDITED_GROUPS, groups
from toys import measured

import interp
from case_studies.frame.evidence import SIZES, Evidence
from case_studies.lego import models as lego_models
from case_studies.recipes import audits
from case_studies.recipes.audits import AuditedModel, head_share, needed_heads, readable_heads
from case_studies.recipes.intervals import proportion
from case_studies.recipes.seeds import more_seeds
from interp.core.statistics import proportion_interval
from interp.known_answers import SUITE, known_answer
from interp.tasks import Dyck, Lego, Template, check_task

EVIDENCE = Evidence(size="quick", seed=0, groups=dict.fromkeys(AUDITED_GROUPS, ()), folder=None)  # type: ignore[arg-type]


@cache
def audited(name):
    known = known_answer(name, 0)
    return interp.audit(known.model, known.task, n=128)


class Spec:
    """The part of a ModelSpec that measures read."""

    def __init__(self, name, seed=0):
        self.task, self.seed, self.name = known_answer(name, 0).task, seed, name


def verdicts(result):
    return np.array([head.verdict for head in result.heads])


def of(*names, group="lego-tied"):
    return [AuditedModel(group, Spec(name, seed), audited(name)) for seed, name in enumerate(names)]


def with_heads(result, **fields):
    return replace(result, heads=tuple(replace(head, **fields) for head in result.heads))


def test_template_models_have_a_large_alphabet_that_grids_of_other_studies_do_not_change():
    n = {name: {spec.settings.n_train for spec in found} for name, found in groups("standard").items()}
    assert (n["aba-abb-plain"], n["same-different-identity"]) == ({4096}, {512})


def test_every_claim_has_a_source_a_rule_and_models():
    found = {size: set(groups(size)) for size in SIZES}
    for claim in STUDY.claims:
        assert claim.statement.endswith("."), claim.id
        assert claim.rule_text.endswith("."), claim.id
        assert claim.quantity, claim.id
        for size in SIZES:
            assert set(claim.needs) <= found[size], claim.id


def test_groups_at_size_standard():
    found = groups("standard")
    keys = {spec.key for name in AUDITED_GROUPS for spec in found[name]}
    assert len(keys) == sum(len(found[name]) for name in AUDITED_GROUPS) >= 60
    kinds = {type(spec.task) for specs in found.values() for spec in specs}
    assert kinds == {Lego, Dyck, Template}
    assert {spec.config.tied for spec in found["lego-tied"]} == {True}
    assert {spec.config.positions for spec in found["dyck-none"]} == {"none"}
    assert {spec.config.qk_identity for spec in found["aba-abb-identity"]} == {True}


def test_quick_lego_models_are_a_subset_of_the_standard_ones():
    quick, standard = groups("quick"), groups("standard")
    assert {spec.key for spec in quick["lego-untied"]} < {spec.key for spec in standard["lego-untied"]}
    assert len(quick["lego-untied"]) == 2
    assert not quick["lego-tied"]
    assert len(standard["lego-tied"]) == len(standard["lego-untied"]) == 8


def test_readable_and_needed_heads():
    result = audited("dyck uneven, zero decoy")
    assert set(verdicts(result)[readable_heads(result)]) == {"misleading"}
    assert set(verdicts(result)[needed_heads(result)]) == {"hidden"}
    any_key = audited("lookup any key")
    assert set(verdicts(any_key)[needed_heads(any_key)]) == {"misleading"}


def test_share_treats_models_as_independent():
    value, low, high = head_share([3, 0, 3, 0], [3, 3, 3, 3]).floats()
    of_heads = proportion_interval(np.array(6), 12)
    assert value == 0.5
    assert low < of_heads[0] < of_heads[1] < high
    assert head_share([0], [0]).floats() == (0.0, 0.0, 1.0)


def measured_share(measure=audits.measure_head_share, **options):
    """The measurement of the claims' judge on planted audits."""
    (claim,) = (claim for claim in STUDY.claims if claim.id == "readable.lego")
    return replace(claim, measure=partial(measure, groups=["lego-tied"], **options)).measurement(EVIDENCE)


def test_shares_of_readable_and_needed_heads(monkeypatch):
    found = of("dyck stack", "dyck uniform", "dyck stack, zero decoy")
    monkeypatch.setattr(audits, "audit_models", lambda evidence, names: iter(found))
    faithful = measured_share(among="readable")
    looks = sum(int(readable_heads(one.result).sum()) for one in found)
    acts = sum(len(one.result.of("faithful")) for one in found)
    assert faithful.value == pytest.approx(acts / looks)
    assert faithful.numbers["heads"] == looks
    hidden = measured_share(among="needed")
    assert hidden.value == pytest.approx(2 / (2 + acts))  # the two uniform heads
    for layer, deepest in ((0, False), (-1, True)):
        at = [one.result.heads[-1].layer if deepest else 0 for one in found]
        of_layer = measured_share(among="readable", layer=layer)
        expected = [head for one, own in zip(found, at, strict=True) for head in one.result.heads if head.layer == own]
        assert of_layer.numbers["heads"] == sum(head.readable for head in expected)


def test_longer_audits_have_the_limit_of_size_paper(monkeypatch):
    sizes = []
    monkeypatch.setattr(audits, "audit_models", lambda evidence, names: sizes.append(evidence.size) or iter(()))
    said = measured_share(audits.measure_head_share_longer, among="needed")
    assert (sizes, said.n) == (["paper"], 1)
    assert audits.MOST_SEQUENCES["paper"] == 4 * audits.MOST_SEQUENCES["standard"]
    assert said.note.endswith("Audits use up to 4,096 sequences.")


def test_share_without_models_is_inconclusive(monkeypatch):
    monkeypatch.setattr(audits, "audit_models", lambda evidence, names: iter(()))
    nothing = measured_share(among="readable")
    assert (nothing.low, nothing.high) == (0, 1)
    assert rule_of("readable.lego").verdict(nothing) == "inconclusive"


def test_share_of_few_heads_is_inconclusive():
    most, few = rule_of("readable.lego"), rule_of("hidden.lego")
    assert most.verdict(measured(0.9, 0.8, 1.0, heads=8)) == "reproduced"
    assert most.verdict(measured(0.9, 0.8, 1.0, heads=7)) == "inconclusive"
    assert few.verdict(measured(0.1, 0.0, 0.2, heads=50)) == "reproduced"
    assert few.verdict(measured(0.9, 0.8, 1.0, heads=50)) == "not reproduced"
    assert few.verdict(measured(0.5, 0.2, 0.8, heads=50)) == "inconclusive"


def claim_of(name):
    (claim,) = (claim for claim in STUDY.claims if claim.id == name)
    return claim


def rule_of(name):
    return claim_of(name).rule


def judged(name):
    return claim_of(name).measurement(EVIDENCE)


def test_misleading_head_is_found_and_confirmed(monkeypatch):
    found = of("dyck stack", "dyck stack, zero decoy")
    monkeypatch.setattr(trained, "audit_models", lambda evidence, names: iter(found))
    monkeypatch.setattr(trained, "_again", lambda evidence, one: one.result)
    monkeypatch.setattr(trained, "_maps", lambda evidence, shown: {"mark": "point"})
    result = judged("misleading.found")
    planted = sum(truth.truth == "misleading" for truth in known_answer("dyck stack, zero decoy", 0).heads.values())
    assert result.numbers["confirmed"] == planted > 0
    assert result.numbers["models with one"] == 1
    assert (result.value, result.n) == (0.5, 2)
    assert result.numbers["share of readable heads"] > 0


def test_unconfirmed_head_is_not_counted(monkeypatch):
    found = of("dyck stack, zero decoy")
    monkeypatch.setattr(trained, "audit_models", lambda evidence, names: iter(found))
    heads = [
        SimpleNamespace(place=head.place, layer=head.layer, head=head.head, verdict="undecided")
        for head in found[0].result.heads
    ]
    other = SimpleNamespace(heads=heads, sentences=lambda: [""] * len(heads))
    monkeypatch.setattr(trained, "_again", lambda evidence, one: other)
    result = judged("misleading.found")
    assert (result.numbers["confirmed"], result.value, result.low) == (0, 0, 0)


def test_misleading_heads_must_be_more_than_wrong_verdicts():
    rule = rule_of("misleading.found")
    for n, hits, verdict in ((72, 33, "reproduced"), (72, 8, "inconclusive"), (72, 0, "not reproduced")):
        assert rule.verdict(measured(*proportion(hits, n).floats())) == verdict
    assert (
        rule.verdict(measured(*proportion(0, 60).floats())) == "inconclusive"
    )  # too few models to exclude one in twenty


def test_agreement_needs_the_same_label_verdict_and_layer(monkeypatch):
    found = {"lego-tied": of("dyck stack", "dyck stack", "dyck uniform")}
    monkeypatch.setattr(trained, "audit_models", lambda evidence, names: iter(found.get(names[0], [])))
    assert judged("twins.agree").value == pytest.approx(0.5)  # one of the two other seeds


def test_models_without_a_needed_head_are_counted(monkeypatch):
    with_none = of("template copy, redundant", group="aba-abb-identity")
    monkeypatch.setattr(
        trained, "audit_models", lambda evidence, names: iter(with_none if names[0] == with_none[0].group else ())
    )
    assert judged("redundant.identity").value == float(not needed_heads(with_none[0].result).any())


def test_verdicts_on_known_answers(monkeypatch):
    names, results, audit = ["dyck stack", "dyck stack, redundant"], {}, controls.audited

    def audited_once(answer, *, seed):
        if answer.name not in results:
            results[answer.name] = audit(answer, seed=seed)
        return results[answer.name]

    monkeypatch.setattr(controls, "audited", audited_once)
    monkeypatch.setattr(controls, "SUITE", {name: SUITE[name] for name in names})
    right = judged("known.dyck")
    assert (right.value, right.n) == (1, 2)
    assert rule_of("known.dyck").verdict(right) == "reproduced"
    monkeypatch.setattr(controls, "misjudged", lambda answer, result: {result.heads[0].place})
    wrong = judged("known.dyck")
    assert wrong.numbers["wrong"] == 2
    assert (wrong.value, wrong.n) == (0, 2)
    assert rule_of("known.dyck").verdict(wrong) == "not reproduced"


def test_wrong_partners_are_misjudged():
    answer, result = known_answer("dyck stack, redundant", 0), audited("dyck stack, redundant")
    assert not controls.misjudged(answer, result)
    alone = with_heads(result, partners=())
    assert controls.misjudged(answer, alone) == set(result.of("redundant"))


@pytest.mark.parametrize("task", [Lego(n_vars=3), Dyck(length=12), Template()], ids=["lego", "dyck", "template"])
def test_shuffled_task_permutes_the_labels(task):
    shuffled = controls.with_shuffled_labels(task)
    check_task(shuffled)
    batch = shuffled.sample(64, generator=torch.Generator().manual_seed(0), split="test")
    plain = task.sample(64, generator=torch.Generator().manual_seed(0), split="test")
    assert torch.equal(batch.tokens, plain.tokens)
    assert not torch.equal(batch.labels, plain.labels)
    assert torch.equal(batch.labels.sort(0).values, plain.labels.sort(0).values)
    assert shuffled.d_vocab == task.d_vocab


def test_alarms_must_be_rare():
    rule = rule_of("silent.untrained")
    for hits, verdict in ((0, "reproduced"), (1, "reproduced"), (2, "inconclusive"), (13, "not reproduced")):
        assert rule.verdict(measured(*proportion(hits, 56).floats())) == verdict


def test_models_without_mimicking_are_the_first_of_those_of_the_lego_study():
    keys = [spec.key for spec in lego_models.groups("standard")[more_seeds("untaught-untied")]]
    of_audit = [spec.key for spec in groups("standard")["lego-untied-unseeded"]]
    assert keys[: len(of_audit)] == of_audit
    assert len(of_audit) == 6
