"""Train in stages, and choose problems by their difficulty."""
