"""Stop a run anywhere and resume it exactly."""
