"""No adaptation: the model as it was trained, against which every method is compared."""

from acclimate.contracts import Adapter


class NoAdaptation(Adapter):
    """Predict with the model as it is."""
