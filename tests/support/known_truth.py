"""Checks of the truth about a known answer's heads, by interventions on heads and sets of heads."""

import torch

import interp
from hooks.interventions.ablation_engine import AblationEngine
from hooks.model.attention import visible_keys
from interp.heads.kinds import relations_of

COSTS = 0.1
"""Smallest loss of accuracy that counts."""
UNREADABLE = {"uniform", "unclassified"}


def names_of(answers, *functions):
    """Names of the answers that one of the functions builds, perhaps with options."""
    return [name for name, build in answers.items() if getattr(build, "func", build) in functions]


def lost(answer, sets, method, *, n=96):
    """Largest loss of accuracy on any outcome, for each set of heads."""
    if not sets:
        return {}
    named = {str(index): list(chosen) for index, chosen in enumerate(sets)}
    result = interp.ablate_heads(answer.model, answer.task, heads=named, method=method, n=n)
    assert (result.clean[:2] == 1).all(), "it solves its task"
    return dict(zip(sets, result.drop[:, :2].max(-1).tolist(), strict=True))


def lost_under_other_rows(answer, head, *, kind=None, n=96):
    """The same with the rows that have related keys uniform over these, or over all keys if no kind is given."""
    batch = answer.task.sample(n, generator=torch.Generator().manual_seed(1), split="test")
    allowed = visible_keys(answer.model.cfg, batch.tokens, batch.attention_mask)
    related = relations_of(answer.task, batch, [answer.heads[head].looks])[answer.heads[head].looks] & allowed
    wanted = (allowed if kind is None else related).double()
    rows = wanted / wanted.sum(-1, keepdim=True).clamp_min(1)

    def mix(layer, clean):
        pattern = torch.where(related.any(-1)[:, None, :, None], rows[:, None], clean.pattern)
        return (pattern @ clean.v.transpose(1, 2)).transpose(1, 2)

    engine = AblationEngine(answer.model, batch.tokens, read_at=batch.target_positions, **batch.model_inputs())
    before, after = (answer.task.score(logits, batch) for logits in (engine.logits, engine.head_set([head], mix)))
    return float(((before.right - after.right).sum(0) / before.total.sum(0))[:2].max())


def check_looks(answer, *, n=48):
    """Check labels against `classify_heads`."""
    labels = interp.classify_heads(answer.model, answer.task, n=n).label
    assert set(answer.heads) == {(layer, head) for layer, row in enumerate(labels) for head in range(len(row))}
    for (layer, head), truth in answer.heads.items():
        seen = labels[layer][head]
        assert (None if seen in UNREADABLE else seen) == truth.looks, (answer.name, layer, head)
        assert (truth.looks is None) == (truth.truth in ("hidden", "idle")), (answer.name, layer, head)


def check_needs(answer):
    """Check the cost of removing heads alone, with their partners, and all unneeded heads at once."""
    of = {kind: [head for head, truth in answer.heads.items() if truth.truth == kind] for kind in TRUTHS}
    needed = [(head,) for head in of["faithful"] + of["hidden"]]
    together = {head: (head, *answer.heads[head].partners) for head in answer.heads}
    harmless = of["idle"] + [head for head in of["misleading"] if not misread(answer, head)]
    with_work = [(*work, head) for work in needed for head in harmless]
    alone = [(head,) for head in of["redundant"] + of["idle"]]
    groups = list(dict.fromkeys(tuple(sorted(together[head])) for head in of["misleading"] if head in harmless))
    fatal = list(dict.fromkeys(tuple(sorted(together[head])) for head in of["redundant"]))
    free = [*groups, *([tuple(harmless)] if harmless else [])]
    by_mean = lost(answer, list(dict.fromkeys([*needed, *with_work, *alone, *free, *fatal])), "mean")
    for chosen in [*needed, *with_work, *fatal]:
        assert by_mean[chosen] > COSTS, (answer.name, chosen)
    for chosen in [*alone, *free]:
        assert by_mean[chosen] == 0, (answer.name, chosen)
    free = list(dict.fromkeys([*free, *((head,) for head in of["idle"])]))
    assert not any(lost(answer, free, "resample").values()), answer.name


def misread(answer, head):
    """Whether a head is needed and has no partners, so that it must act through another part of its pattern."""
    return not answer.heads[head].partners and lost(answer, [(head,)], "mean")[(head,)] > COSTS


def check_patterns(answer):
    """Check that faithful heads act through their pattern, and misread heads do not."""
    for head, truth in answer.heads.items():
        if truth.truth == "faithful":
            assert lost_under_other_rows(answer, head) > COSTS, (answer.name, head)
            assert lost_under_other_rows(answer, head, kind=truth.looks) == 0, (answer.name, head)
        if truth.truth == "misleading" and misread(answer, head):
            assert lost_under_other_rows(answer, head, kind=truth.looks) > COSTS, (answer.name, head)


TRUTHS = ("faithful", "misleading", "hidden", "idle", "redundant")
