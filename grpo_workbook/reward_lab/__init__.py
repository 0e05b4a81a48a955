"""Look at rewards before training: scores in a table, attacks, symbolic answers."""
