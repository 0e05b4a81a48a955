"""Run model-written Python against tests, and pay for what passes."""
