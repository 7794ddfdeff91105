from .loading import from_huggingface as from_huggingface
from .parity import ParityReport as ParityReport
from .saving import save_huggingface as save_huggingface
