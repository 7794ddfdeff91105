"""A trained or pretrained model, by its folder or name."""

from pathlib import Path

from hooks import from_huggingface
from hooks.files import user_path
from hooks.model.architectures import Model
from hooks.typed import checks_types
from interp.training.folder import RunFolder
from interp.training.packaged import PACKAGED, packaged_folder
from interp.training.run import TrainingRun


@checks_types
def load(source: str | Path) -> Model:
    """Load a model: of a training run, of a Hugging Face folder, or packaged weights by name.

    Nothing is fetched, and no code from a folder is executed.

    Args:
        source: The folder of a training run; the folder of a Hugging Face GPT-2, BERT or ALBERT; or `minilm`, an
            encoder of 6 layers with 12 heads (all-MiniLM-L6-v2), whose weights are in the extra `pretrained`.

    Returns:
        The model in evaluation mode, with its tokenizer. Its vocabulary is that of its training: `interp.pretrained`
        makes a model for a task of it, with one row of the embedding for each token of the task, and a read-out.

    Raises:
        FileNotFoundError: there is no such folder, or it holds no model.
        MissingExtra: packaged weights that are not installed; says the command that installs them.
        ValueError: an unfinished run, or a folder that `hooks.from_huggingface` refuses.

    Example:
        >>> import tempfile, interp
        >>> task = interp.tasks.Lego(n_vars=1)
        >>> settings = interp.TrainSettings(steps=1, batch_size=4, n_eval=8)
        >>> folder = tempfile.mkdtemp()
        >>> run = interp.train(interp.known_answers.lego_loop(task), task, settings, folder=folder)
        >>> interp.load(folder).cfg == run.model.cfg
        True
    """
    if source in PACKAGED:
        return from_huggingface(packaged_folder(str(source)))
    path = user_path(source)
    if not path.exists():
        raise FileNotFoundError(
            f"source is {str(source)!r}; there is no such folder, and packaged weights are {', '.join(PACKAGED)}. A "
            f"model of the hub is loaded by hooks.from_huggingface."
        )
    if RunFolder(path).manifest_path.exists():
        return TrainingRun.load(path).model
    return from_huggingface(path)
