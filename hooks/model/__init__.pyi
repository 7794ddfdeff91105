from . import presets as presets
