"""From SQL to a plan: tries the layouts of each table, and the kinds of plan, in order of preference."""
