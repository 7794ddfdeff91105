"""What the study found, and the words that it uses."""

from case_studies.frame.finding import Finding

FINDINGS = (
    Finding(
        text="A small GPT-2 with two more scalars per head reaches a lower loss in the same number of steps, by "
        "{perplexity.gpt2} nats per token.",
        reproduced=("perplexity.gpt2",),
    ),
    Finding(
        text="Ordinary pretraining moves weights the same way without the scalars: in a share of "
        "{diagonals.query-key.gpt2} of the models, several heads have a strong diagonal in W_Q W_K^T.",
        reproduced=("diagonals.query-key.gpt2",),
    ),
    Finding(
        text="And pretraining helps with templates: fine-tuned on few strings, a pretrained model is more accurate on "
        "unseen symbols than one trained from scratch, by {finetuning}.",
        reproduced=("finetuning",),
    ),
)
WORDS = {
    "a I, b I": "trainable multiples of the identity, added to W_Q W_K^T and to W_V W_O of each head",
    "strong diagonal": "the mean of the diagonal is far above that of the other entries",
    "template task": "strings that are labelled by which of their symbols are equal, tested on unseen symbols",
    "nats per token": "the loss of a language model; perplexity is its exponential",
}
