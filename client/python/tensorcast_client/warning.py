"""What this package warns of."""


class TensorcastFallbackWarning(UserWarning):
    """The official package did the work, because the daemon could not: it does not run, may not read the path, or has no room."""
