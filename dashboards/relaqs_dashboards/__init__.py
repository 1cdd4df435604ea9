"""The progressive-visualization web app. It imports `relaqs` alone."""
