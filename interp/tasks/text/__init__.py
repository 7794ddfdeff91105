"""Language modelling on text."""

from hooks.extras import require

require("tokenizers", extra="text")
