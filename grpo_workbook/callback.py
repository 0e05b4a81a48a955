"""What our Trainer callbacks derive from: it needs no Transformers, which may be loaded only after Unsloth."""


class Callback:
    """A Trainer callback that answers every event with nothing, until a method says otherwise.

    One with `state_dict()` and `load_state_dict(state)` has its state kept in checkpoints (see resume.py).
    """

    def __getattr__(self, name: str):
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)
