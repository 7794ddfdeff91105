"""The study of published readings on a pack in which it is known what each part does."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from published_packs import inputs, weights, write_published
from published_readings import readings
from published_readings.known import KNOWN
from published_readings.packs import read_pack
from published_readings.readings import claim_id, word_for
from published_readings.runs import Runs, runs
from published_readings.study import study

from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import Packs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("published")
    write_published(found)
    return found


@pytest.fixture(scope="module")
def pack(folder):
    return read_pack(folder / "first.json")


def test_statements_without_a_check_are_judged_by_removal(folder, tmp_path):
    result = study(folder).run(size="standard", folder=tmp_path, n_jobs=1)
    found = {one.claim.id: one for one in result.claims}
    measured = {name: one.measurement for name, one in found.items() if one.measurement is not None}
    assert set(measured) == set(found)
    verdicts = {name: one.verdict for name, one in found.items() if name.startswith("first.")}
    assert verdicts == {
        "first.a1": "reproduced",
        "first.a2": "not reproduced",
        "first.a3": "reproduced",
        "first.a4": "not reproduced",
        "first.a5": "reproduced",
        "first.a6": "inconclusive",
        "first.a7": "inconclusive",
    }
    words = {name: measured[name].numbers["reading"] for name in verdicts}
    assert [words[f"first.a{at}"] for at in (1, 2, 3, 6)] == ["confirmed", "refuted", "confirmed", "undecided"]
    assert measured["first.a1"].numbers["audit of head 0.0"] == "faithful (first_token)"
    _, (title, rows), *_ = measured["first.a6"].tables
    assert title == "Attention of head 0.0"
    assert "0 (1.00)" in rows[1][1]
    assert found["logits"].verdict == found["accuracy"].verdict == "reproduced"
    true, whole = measured["readings.true"], measured["readings.whole"]
    assert (true.value, true.n) == (0.6, 5)
    assert (whole.value, whole.n) == (1, 2)
    shuffled = measured["readings.shuffled"]
    assert (shuffled.value, shuffled.n) == (0, 1)
    assert true.numbers == {"confirmed": 3, "limited": 0, "refuted": 2, "undecided": 2}
    assert any("Statement a4." in page.read_text() for page in (result.page.parent / "claims").iterdir())


def head(verdict, **needed):
    return SimpleNamespace(verdict=verdict, needed=needed)


@pytest.mark.parametrize(
    ("kind", "verdict", "heads", "word"),
    [
        ("looks", "reproduced", [head("faithful")], "confirmed"),
        ("looks", "reproduced", [head("undecided")], "confirmed"),
        ("looks", "reproduced", [head("faithful"), head("misleading")], "limited"),
        ("looks", "reproduced", [head("hidden")], "limited"),
        ("looks", "not reproduced", [head("faithful")], "refuted"),
        ("looks", "inconclusive", [head("idle")], "undecided"),
        ("does", "reproduced", [head("hidden")], "confirmed"),
        ("does", "reproduced", [head("idle")], "limited"),
        ("algorithm", "reproduced", [head("redundant")], "limited"),
        ("algorithm", "reproduced", [], "confirmed"),
        ("needs", "reproduced", [head("hidden", mean=True, zero=False)], "confirmed"),
        ("needs", "reproduced", [head("idle", mean=False)], "limited"),
        ("not_needed", "reproduced", [head("idle", mean=False, zero=False)], "confirmed"),
        ("not_needed", "reproduced", [head("idle", mean=False, zero=True)], "limited"),
        ("not_needed", "reproduced", [head("redundant", mean=False, zero=None)], "limited"),
    ],
)
def test_words(kind, verdict, heads, word):
    assert word_for(kind, verdict, heads) == word
    assert word_for(kind, verdict, heads, limited=True) == {"confirmed": "limited"}.get(word, word)


def test_claims_without_the_packs(tmp_path):
    found = study(tmp_path / "nowhere")
    known = {claim_id(name, id) for name, one in KNOWN.items() for id in one.checks}
    assert {claim.id for claim in found.claims} == known | {
        "logits",
        "accuracy",
        "readings.true",
        "readings.whole",
        "readings.shuffled",
    }
    assert len(known) == 79
    evidence = Evidence(size="quick", seed=0, groups={}, folder=tmp_path)
    with pytest.raises(ValueError, match="has no packs"):
        found.claims[0].measure(evidence)


def test_other_readings_of_a_known_name_are_judged_by_removal(tmp_path):
    """A pack may be called like one for which checks were written, and say other things."""
    write_published(tmp_path, name="brackets", readings=[("br03", "needs", {"part": "head", "layer": 0, "head": 1})])
    (claim,) = [one for one in study(tmp_path).claims if one.id == "brackets.br03"]
    assert claim.statement == "Statement br03."


def test_digests_of_the_known_readings_differ():
    assert len({one.digest for one in KNOWN.values()}) == len(KNOWN) == 4


def test_the_model_on_its_inputs(pack):
    seen = runs(pack)
    assert (seen.logits().argmax(-1) == pack.task.labels).all()
    assert (seen.pattern(0, 0)[:, :, 0] > 0.99).all()
    written = seen.written(0, 0)
    assert torch.allclose(written[:, 3, 3:6], torch.eye(3)[pack.task.inputs[:, 0]], atol=1e-2)
    assert torch.allclose(seen.direct(written), seen.logits(), atol=1e-4)
    assert seen.written(0, 1).abs().max() == 0


def test_edits(pack):
    seen = runs(pack)
    clean = seen.logits()
    assert not torch.equal(seen.logits(seen.without_head((0, 0))), clean)
    assert torch.equal(seen.logits(seen.without_head((0, 1))), clean)
    zero = seen.logits(seen.without_head((0, 0), by="zero"))
    assert zero.abs().max() == 0
    mean = seen.logits(seen.without_head((0, 0)))
    assert torch.allclose(mean, clean.mean(0).expand_as(mean), atol=1e-3)
    assert torch.equal(seen.logits(seen.without_mlp(0)), clean)
    assert torch.equal(seen.logits(seen.without_neurons(0, [1])), clean)


def test_a_head_reads_an_edited_stream(pack):
    """The head reads other values; nothing else does."""
    seen = runs(pack)
    stream = seen.activation("blocks.0.hook_resid_pre")
    rolled = stream.clone()
    rolled[:, 0, :3] = stream[:, 0, :3].roll(1, dims=-1)
    found = seen.logits(seen.head_inputs(0, 0, rolled, "v")).argmax(-1)
    assert torch.equal(found, (pack.task.labels + 1) % 3)
    assert torch.equal(seen.logits(seen.head_inputs(0, 0, stream)), seen.logits())
    assert torch.equal(seen.logits(seen.head_inputs(0, 1, rolled)), seen.logits())


def test_means_leave_out_padding(tmp_path):
    arrays = inputs()
    arrays["tokens"][::2, 1:] = 3
    path = write_published(
        tmp_path, config={"key_padding_token": 3}, arrays=arrays | {"target_positions": np.array([0])}
    )
    pack = read_pack(path)
    seen = runs(pack)
    value = torch.arange(1600.0).reshape(400, 4)
    real = pack.task.inputs != 3
    wanted = torch.stack([value[real[:, at], at].mean() if real[:, at].any() else torch.tensor(0.0) for at in range(4)])
    assert torch.allclose(seen.mean_of(value), wanted)


def test_other_inputs(pack):
    seen = Runs(pack, torch.tensor([[2, 0, 0, 3], [1, 2, 2, 3]]))
    assert seen.logits().argmax(-1).flatten().tolist() == [2, 1]


BIG = {f"blocks.0.attn.{name}": weights()[f"blocks.0.attn.{name}"].astype(object) for name in ("W_Q",)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"readings": [("a", "thinks", {"part": "model"})]}, "a reading has the kind 'thinks'; the kinds are looks"),
        (
            {"readings": [("a", "does", {"part": "head", "layer": 0, "head": 2})]},
            r"a is about head 0.2, which the model",
        ),
        ({"readings": [("a", "does", {"part": "head", "layer": -1, "head": 0})]}, "head of a reading"),
        ({"readings": [("a", "does", {"part": "head", "layer": 0})]}, "'head' is missing"),
        ({"readings": [("a", "does", {}), ("a", "does", {})]}, "two readings have the same id"),
        ({"config": {"n_ctx": 0}}, "n_ctx"),
        ({"config": {"n_heads": 3}}, "W_Q of shape"),
        ({"config": {"act_fn": "swish"}}, "act_fn 'swish'"),
        ({"measured": 3, "config": None, "examples": 3}, "is not a pack of a published model"),
        ({"arrays": {"tokens": inputs()["tokens"] + 1}}, "tokens goes from 1 to 4; it must be from 0 to 3"),
        ({"arrays": {"targets": inputs()["targets"] + 1}}, "targets goes from 1 to 3"),
        ({"arrays": {"targets": np.full((400, 1), -1, np.int16)}}, "targets has no answer"),
        ({"arrays": {"targets": inputs()["targets"][:3]}}, r"targets \(3, 1\); they must be"),
        ({"arrays": {"target_positions": np.array([4], np.int16)}}, "target_positions goes from 4 to 4"),
        ({"arrays": {"tokens": inputs()["tokens"].astype(float)}}, "tokens has type float64; only numbers are read"),
        ({"arrays": {"further": np.zeros((2, 2))}}, "'further', which has no place"),
        ({"arrays": {"W_E": np.zeros((1, 1, 1, 1))}}, "W_E has 4 axes"),
        ({"arrays": BIG}, "holds objects"),
        ({"arrays": {"W_E": np.full((4, 8), np.nan)}}, "not finite"),
    ],
)
def test_packs_that_do_not_fit_are_refused(tmp_path, given, words):
    with pytest.raises(ValueError, match=words):
        read_pack(write_published(tmp_path, **given))


def test_damaged_files(tmp_path):
    path = write_published(tmp_path)
    content = path.with_suffix(".npz").read_bytes()
    path.with_suffix(".npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="the archive is damaged"):
        read_pack(path)
    path.with_suffix(".npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"first\.npz; a pack of a published model is"):
        read_pack(path)


def test_two_packs_of_one_name(tmp_path):
    write_published(tmp_path)
    for ending in (".json", ".npz"):
        (tmp_path / f"second{ending}").write_bytes((tmp_path / f"first{ending}").read_bytes())
    with pytest.raises(ValueError, match="another pack in its folder is called 'first' too"):
        readings.claims(Packs(tmp_path))
