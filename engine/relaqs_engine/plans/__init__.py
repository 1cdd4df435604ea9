"""Plans: frozen values that say what runs where, and why. Deciding happens in `rewrite` and `planning`."""
