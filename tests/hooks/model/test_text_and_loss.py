"""Text input, `return_type`, and the methods that translate between texts and tokens."""

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import hooks
from interp.tasks.base import Vocab

LETTERS = tuple("abcdefghijk")


@pytest.fixture
def model(make):
    made = make(attention="causal")
    made.tokenizer = Vocab(LETTERS)
    return made


def special_tokenizer(**special):
    """A tokenizer of transformers for single letters, which puts [CLS] before and [SEP] after a text."""
    names = ["[CLS]", "[SEP]", "[UNK]", *LETTERS[:8]]
    engine = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]")
    )
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    engine.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=engine, unk_token="[UNK]", **special)


def test_a_text_gives_the_logits_of_its_tokens(model):
    expected = model(torch.tensor([[3, 0, 1], [2, 2, 4]]))
    assert torch.equal(model(["dab", "cce"]), expected)
    assert torch.equal(model("c c e"), model(torch.tensor([[2, 2, 4]])))
    logits, cache = model.run_with_cache("dab")
    assert torch.equal(logits, model(torch.tensor([[3, 0, 1]])))
    assert cache["embed"].shape == (1, 3, 12)


def test_an_encoder_reads_text():
    model = hooks.Encoder(hooks.EncoderConfig(d_vocab=11, d_model=12, n_heads=3, n_ctx=10))
    with pytest.raises(ValueError, match=r"this model has no tokenizer; pass token ids, or set model.tokenizer"):
        model("a")
    model.tokenizer = special_tokenizer()
    assert torch.equal(model("a b"), model(torch.tensor([[0, 3, 4, 1]])))


def test_texts_of_different_lengths_are_not_padded(model):
    with pytest.raises(ValueError, match=r"the texts have 2 to 4 tokens, and none are padded: pass texts with one num"):
        model(["ab", "abcd", "abc"])


def test_tokens_and_texts(model):
    assert model.to_tokens(np.array([[1, 2]])).tolist() == model.to_tokens([1, 2]).tolist() == [[1, 2]]
    assert model.to_str_tokens("bad") == model.to_str_tokens(np.array([1, 0, 3])) == ["b", "a", "d"]
    assert model.to_str_tokens(torch.tensor([[4]])) == ["e"]
    assert model.to_str_tokens(["ab", "c"]) == [["a", "b"], ["c"]]
    assert model.to_string(torch.tensor([[1, 0], [2, 3]])) == ["ba", "cd"]
    assert model.to_string([1, 0, 3]) == "bad"
    assert model.to_string(torch.tensor(2)) == model.to_single_str_token(2) == "c"
    assert model.to_single_token("c") == 2
    direction = model.ln_final.w * model.W_U[:, 2]
    assert torch.equal(model.tokens_to_residual_directions("c"), direction)
    with pytest.raises(ValueError, match=r"tokens is \(2, 2\); to_str_tokens reads one sequence"):
        model.to_str_tokens(torch.zeros(2, 2, dtype=torch.long))


def test_special_tokens_of_a_tokenizer(model):
    model.tokenizer = special_tokenizer(bos_token="[CLS]")
    assert model.to_tokens("a b").tolist() == model.to_tokens("a b", prepend_bos=True).tolist() == [[0, 3, 4, 1]]
    assert model.to_tokens("a b", prepend_bos=False).tolist() == [[3, 4]]
    assert model.to_str_tokens("a b") == ["[CLS]", "a", "b", "[SEP]"]
    assert model.to_str_tokens(["a b"], prepend_bos=False) == [["a", "b"]]
    assert model.to_single_token("b") == 4
    model.tokenizer = special_tokenizer(bos_token="h")
    assert model.to_tokens("a", prepend_bos=True).tolist() == [[10, 0, 3, 1]]


def test_what_a_tokenizer_lacks(model):
    with pytest.raises(ValueError, match="prepend_bos is True, but the tokenizer, a Vocab, has no BOS token"):
        model.to_tokens("ab", prepend_bos=True)

    class Reader:
        def encode(self, text):
            return [ord(letter) - ord("a") for letter in text]

    model.tokenizer = Reader()
    assert model.to_tokens("b").tolist() == [[1]]
    with pytest.raises(ValueError, match="the tokenizer, a Reader, has no decode; set one that has it"):
        model.to_str_tokens("b")
    model.tokenizer = None
    for read in (model, model.to_str_tokens, model.to_single_token):
        with pytest.raises(ValueError, match=r"this model has no tokenizer; pass token ids, or set model.tokenizer"):
            read("a")
    with pytest.raises(ValueError, match="this model has no tokenizer"):
        model.to_string([0])


def by_hand(logits, tokens):
    """The loss of each next token, one at a time."""
    return torch.stack([
        torch.stack([-row[pos].log_softmax(0)[ids[pos + 1]] for pos in range(len(ids) - 1)])
        for row, ids in zip(logits, tokens, strict=True)
    ])  # fmt: skip


def test_return_types(model, tokens):
    logits = model(tokens)
    losses = by_hand(logits, tokens)
    close = torch.testing.assert_close
    assert torch.equal(model(tokens, return_type="logits"), logits)
    assert model(tokens, return_type=None) is None
    close(model(tokens, return_type="loss"), losses.mean())
    both = model(tokens, return_type="both", loss_per_token=True)
    assert torch.equal(both[0], logits)
    close(both[1], losses)
    close(model("abca", return_type="loss"), by_hand(model("abca"), torch.tensor([[0, 1, 2, 0]])).mean())


def test_padding_is_no_target(model, tokens):
    mask = torch.ones_like(tokens)
    mask[0, 5:] = 0  # three targets less
    mask[1, :2] = 0  # two less: the first real token has no token before it
    losses = by_hand(model(tokens, mask), tokens)
    kept = torch.ones(4, 7, dtype=torch.bool)
    kept[0, 4:] = False
    kept[1, :2] = False
    per_token = model(tokens, mask, return_type="loss", loss_per_token=True)
    torch.testing.assert_close(per_token, losses * kept)
    torch.testing.assert_close(model(tokens, mask, return_type="loss"), losses[kept].mean())


def test_a_loss_gives_gradients_in_the_cache(model, tokens):
    _, cache = model.run_with_cache(tokens, return_type="loss", incl_bwd=True)
    assert cache["blocks.0.hook_resid_pre_grad"].abs().max() > 0


@pytest.mark.usefixtures("as_a_user")
def test_losses_that_do_not_exist(make, tokens):
    with pytest.raises(ValueError, match="'loss' is the loss of the next token, which this bidirectional model reads"):
        make(attention="bidirectional")(tokens, return_type="loss")
    with pytest.raises(ValueError, match="d_vocab_out is 4 and d_vocab 11: these logits are not of tokens"):
        make(attention="causal", d_vocab_out=4)(tokens, return_type="both")
    causal = make(attention="causal")
    with pytest.raises(ValueError, match="return_type is 'prob'; choose one of 'logits', 'loss', 'both', None"):
        causal(tokens, return_type="prob")
    with pytest.raises(ValueError, match="loss_per_token is on, but return_type is 'logits'"):
        causal(tokens, loss_per_token=True)
    with pytest.raises(ValueError, match=r"tokens is \(4, 1\); a next-token loss needs two positions or more"):
        causal(tokens[:, :1], return_type="loss")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([torch.tensor([1, 2]), torch.tensor([1, 2, 3])], "the texts have 2 to 3 tokens, and none are padded"),
        ([[1, 2], [3]], "the texts have 1 to 2 tokens"),
        ([[1, 2], 3], "single ids beside rows"),
        ([[1.5]], "texts, or rows of integer ids"),
        ([None], "tokens has None"),
        ([[True]], "texts, or rows of integer ids"),
    ],
)
def test_rows_that_are_no_ids(tokens, words):
    with pytest.raises(ValueError, match=words):
        hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1)).to_tokens(tokens)


def test_rows_of_tensors_and_arrays():
    model = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))
    rows = ([torch.tensor([1, 2]), torch.tensor([3, 4])], [np.array([1, 2]), (3, 4)], [[1, 2], [3, 4]])
    assert all(model.to_tokens(tokens).tolist() == [[1, 2], [3, 4]] for tokens in rows)
