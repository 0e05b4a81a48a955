"""Read a run's log, name what is wrong, and watch a run while it trains."""
