from .adapter import BridgeConfig as BridgeConfig
from .adapter import BridgeModel as BridgeModel
from .adapter import from_bridge as from_bridge
from .capabilities import Capabilities as Capabilities
from .sites import Cell as Cell
