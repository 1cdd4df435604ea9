"""The commands `relaqs simulate` and `relaqs learn`, and tables of policies side by side."""
