"""The dashboard: pages of panels, each a query whose chart sharpens, served to browsers and notebooks.

Python here, TypeScript in `dashboards/web`, its bundle in `static`. It runs queries through `relaqs` alone,
and nothing below knows of it.
"""
