"""Folders like a clone of the verified models' repository, with hand-written or untrained models, for tests."""

import json

from verified_circuits.files import to_file_content


def write_clone(folder, models, **changes):
    """Write the weight files of models by number of tokens; `changes` replace entries of their content."""
    certificates = folder / "certificates"
    certificates.mkdir(parents=True, exist_ok=True)
    for n, model in models.items():
        content = {**to_file_content(model, "for tests"), **changes}
        (certificates / f"dyck{n}_exact_seed0.weights.json").write_text(json.dumps(content))
    return folder
