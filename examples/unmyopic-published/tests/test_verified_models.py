"""Weight files of verified models, the transformer that they are read into, its task, and hand-written circuits."""

import json

import pytest
import torch
from verified_circuits.files import load_model, read_model, to_file_content, weight_files
from verified_circuits.handwritten import MARGIN, handwritten_circuit
from verified_circuits.interchanges import Subject, read_subject
from verified_circuits.model import PooledConfig, PooledTransformer
from verified_circuits.strings import Balanced, every_string
from weight_files import write_clone

import interp
from case_studies.frame.packs import WeightFiles

SMALL = PooledConfig(n_ctx=4, d_model=8, d_mlp=6)


@pytest.fixture
def model():
    return PooledTransformer(SMALL, seed=3)


def written_out(model, tokens):
    """Logits of one string from dense matrices, head by head and query by query."""
    x = model.embed.weight[tokens] + model.positions.weight[: len(tokens)]
    for block in model.blocks:
        rows = []
        for query in range(len(tokens)):
            row = x[query].clone()
            for head in range(model.cfg.n_heads):
                w_q, w_k, w_v, w_o = (getattr(block.attn, f"W_{name}")[head] for name in "QKVO")
                scores = torch.stack([(x[query] @ w_q) @ (x[key] @ w_k) for key in range(query + 1)])
                weights = (scores / model.cfg.d_head**0.5).softmax(0)
                row = row + sum(weight * (x[key] @ w_v @ w_o) for key, weight in enumerate(weights))
            rows.append(row)
        x = torch.stack(rows)
        x = x + (x @ block.mlp[0].weight.T + block.mlp[0].bias).relu() @ block.mlp[2].weight.T + block.mlp[2].bias
    hidden = (x.sum(0) @ model.hidden.weight.T + model.hidden.bias).relu()
    return hidden @ model.unembed.weight.T + model.unembed.bias


def test_logits_are_those_of_the_matrices_written_out(model):
    tokens = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1]])
    logits = model(tokens)
    assert logits.shape == (2, 4, 2)
    assert torch.equal(logits, logits[:, :1].expand(-1, 4, -1))
    for row, string in zip(logits[:, 0], tokens, strict=True):
        assert torch.allclose(row, written_out(model, string), atol=1e-5)


def test_files_have_heads_as_consecutive_rows_and_exact_numbers(model, tmp_path):
    clone = write_clone(tmp_path, {10: model})
    path = clone / "certificates/dyck10_exact_seed0.weights.json"
    weights = json.loads(path.read_text())["state_dict_hex"]
    queries = torch.tensor([[float.fromhex(text) for text in row] for row in weights["blocks.1.Wq.weight"]])
    outputs = torch.tensor([[float.fromhex(text) for text in row] for row in weights["blocks.1.Wo.weight"]])
    attention = model.blocks[1].attn
    assert torch.equal(queries[4:].T, attention.W_Q[1])  # the second head has the second half of the rows
    assert torch.equal(outputs[:, 4:].T, attention.W_O[1])
    loaded = load_model(path)
    assert all(torch.equal(loaded.state_dict()[name], weight) for name, weight in model.state_dict().items())
    assert loaded.cfg == SMALL
    assert not loaded.training


def changed(model, name, entry):
    weights = to_file_content(model, "")["state_dict_hex"]
    return {"state_dict_hex": {**weights, name: entry} if entry is not None else weights | {name: None}}


CFG = to_file_content(PooledTransformer(SMALL), "")["cfg"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cfg": {**CFG, "causal": False}}, "cfg.causal is False; only True is known"),
        ({"cfg": {**CFG, "pool": "mean"}}, "cfg.pool is 'mean'; only 'sum' is known"),
        ({"cfg": {**CFG, "heads": 3}}, "cfg.d is 8, which 3 heads do not divide"),
        ({"cfg": {**CFG, "layers": 0}}, "cfg.layers is 0"),
        ({"cfg": {**CFG, "d": 10**9}}, "cfg.d is 1000000000"),
        ({"cfg": {"causal": True}}, "'pool' is missing"),
        ({"cfg": None}, "is not a weight file of brian-naughton/verified-circuits"),
        ({"state_dict_hex": {}}, "the weight 'tok.weight' is missing"),
        (
            {"further.weight": 1, "state_dict_hex": {"further.weight": []}},
            "the weight 'further.weight', which the model",
        ),
        ("tok.weight:3", "tok.weight has a int; weights are texts of hexadecimal numbers"),
        ("tok.weight:[['0x1p0', 'nan']]", "tok.weight has a number that is not finite"),
        ("tok.weight:[['0x1.00000000001p0']]", "tok.weight has a number that single precision cannot hold"),
        ("tok.weight:[['0x1p0']]", r"tok.weight is \(1, 1\), which does not fit cfg"),
        ("tok.weight:[['0x1p0'], []]", "dyck10_exact_seed0.weights.json is not a weight file"),
        ("tok.weight:[['one']]", "invalid hexadecimal"),
        ("blocks.0.Wq.weight:[['0x1p0']]", r"blocks.0.Wq.weight is \(1, 1\)"),
    ],
)
def test_wrong_files_are_named_with_what_was_found(model, tmp_path, changes, words):
    if isinstance(changes, str):
        name, _, entry = changes.partition(":")
        changes = {"state_dict_hex": to_file_content(model, "")["state_dict_hex"] | {name: eval(entry)}}
    write_clone(tmp_path, {10: model}, **changes)
    path = tmp_path / "certificates/dyck10_exact_seed0.weights.json"
    with pytest.raises(ValueError, match=words) as error:
        load_model(path)
    assert str(path) in str(error.value)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file.json"
    with pytest.raises(FileNotFoundError):
        load_model(path)
    for content, words in (("{", "is not readable JSON"), ("[]", "it has a list, not an object")):
        path.write_text(content)
        with pytest.raises(ValueError, match=words):
            load_model(path)


def test_weights_are_found_in_a_clone_or_its_certificates(tmp_path):
    clone = write_clone(tmp_path / "clone", {10: handwritten_circuit(10, "literal")})
    in_clone, in_certificates = weight_files(clone, 10), weight_files(clone / "certificates", 10)
    assert in_clone.paths == in_certificates.paths
    assert in_clone.digest == in_certificates.digest != ""
    assert torch.equal(read_model(in_clone).embed.weight, read_model(in_certificates).embed.weight)
    assert weight_files(clone, 16).missing == "no certificates/dyck16_exact_seed0.weights.json"


def test_a_model_of_another_length_is_refused(tmp_path):
    clone = write_clone(tmp_path, {10: handwritten_circuit(8, "literal")})
    with pytest.raises(ValueError, match=r"dyck10_exact_seed0.weights.json has cfg.n 8; the study expects 10"):
        read_subject(weight_files(clone, 10), 10)
    with pytest.raises(ValueError, match="there are no weights"):
        read_subject(WeightFiles(names=("a.json",)), 10)


def test_strings_with_their_variables():
    strings = every_string(4)
    assert strings.tokens.shape == (16, 4)
    row = int("0110", 2)  # ())(
    assert strings.tokens[row].tolist() == [0, 1, 1, 0]
    assert strings.depth[row].tolist() == [1, 0, -1, 0]
    assert strings.flags[row].tolist() == [0, 0, 1, 0]
    assert (int(strings.total[row]), int(strings.violations[row])) == (0, 1)
    balanced = {row for row in range(16) if strings.balanced[row]}
    assert balanced == {int("0011", 2), int("0101", 2)}
    assert [int(every_string(n).balanced.sum()) for n in (2, 6, 8, 10)] == [1, 5, 14, 42]  # Catalan numbers


def test_the_task():
    task = Balanced(n=6)
    interp.check_task(task)
    every = task.every_input()
    assert torch.equal(every.tokens, every_string(6).tokens)
    assert int(every.labels.sum()) == 5
    drawn = task.sample(4000, generator=torch.Generator().manual_seed(0))
    assert abs(float(drawn.labels.double().mean()) - 0.5) < 5 * 0.5 / 4000**0.5
    assert interp.evaluate(handwritten_circuit(6, "charitable"), task, n=64).accuracy.min() == 1


def test_every_verb_accepts_the_model():
    obstacles = interp.supported_verbs(handwritten_circuit(6, "literal")).obstacles
    works = {verb for verb, obstacle in obstacles.items() if not obstacle}
    assert {"audit", "implements", "probe", "classify_heads", "ablate_heads", "audit_probe"} <= works


def test_an_untrained_model_is_another_one(model):
    untrained = model.untrained(3)
    assert torch.equal(untrained.embed.weight, model.embed.weight)
    assert not torch.equal(model.untrained(4).embed.weight, model.embed.weight)


@pytest.mark.parametrize("wiring", ["literal", "charitable"])
@pytest.mark.parametrize("n", [1, 4, 10])
def test_handwritten_circuits_decide_every_string(n, wiring):
    subject = Subject(handwritten_circuit(n, wiring), n)
    logits = subject.logits()
    balanced = subject.strings.balanced
    assert torch.equal(logits.argmax(1) == 1, balanced)
    if balanced.any():
        assert torch.allclose(logits[balanced, 1], torch.tensor(MARGIN, dtype=torch.float64), atol=1e-4)
    assert logits[~balanced, 1].max() < -MARGIN + 1e-3


def test_handwritten_circuits_are_short():
    with pytest.raises(ValueError, match="n is 17; the width of the model is enough for 1 to 16 tokens"):
        handwritten_circuit(17, "literal")
