from .adapter import from_bridge as from_bridge
from .capabilities import Capabilities as Capabilities
from .model import BridgeConfig as BridgeConfig
from .model import BridgeModel as BridgeModel
from .sites import Cell as Cell
