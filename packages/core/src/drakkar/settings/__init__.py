"""Settings: read them with `load_settings`."""

from drakkar.settings.load import load_settings
from drakkar.settings.mask import masked
from drakkar.settings.models import Settings

__all__ = ["Settings", "load_settings", "masked"]
