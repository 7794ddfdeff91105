"""Results saved before their estimates were intervals load as the same results."""

import json

import numpy as np
import pytest

import interp
from hooks import Transformer
from interp.tasks import Lego, Template

LEGO = Lego(n_vars=3)
TEMPLATE = Template(templates=("aba -> +1", "abb -> -1"), train=60)


def model():
    return Transformer(interp.config_for(LEGO, n_layers=1, d_model=8, n_heads=2))


RESULTS = {
    "curve": lambda: interp.pruning_curve(model(), LEGO, by=["magnitude", "heads"], fractions=(1, 0), n=16),
    "signs": lambda: interp.theory.sign_counting(model(), LEGO, n=20),
    "regression": lambda: interp.theory.kernel_regression(TEMPLATE, n=20, n_validation=10, n_test=10),
    "matrix": lambda: interp.theory.template_matrix(TEMPLATE, interp.theory.TransformerKernel(n_draws=20)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_with_parallel_fields_load(name, tmp_path):
    result = RESULTS[name]()
    saved = json.loads(json.dumps(result.to_dict()))
    for field, names in type(result).former_fields.items():
        interval = saved["values"].pop(field)
        for former_name, part in zip(names[:3], ("value", "low", "high"), strict=True):
            saved["values"][former_name] = interval[part]
    path = tmp_path / "former.json"
    path.write_text(json.dumps(saved))
    loaded = type(result).load(path)
    assert str(loaded) == str(result)
    assert loaded.to_dataframe().equals(result.to_dataframe())
    for field in type(result).former_fields:
        for part in ("value", "low", "high"):
            former, now = (getattr(getattr(one, field), part) for one in (loaded, result))
            np.testing.assert_array_equal(former, now)
