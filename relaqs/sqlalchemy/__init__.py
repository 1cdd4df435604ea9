"""SQLAlchemy's dialect `relaqs://`: engines over a warehouse, for pandas.read_sql and whatever else has one.

    create_engine("relaqs:///warehouse?target=5%25")

SQLAlchemy finds it by an entry point. It translates between SQLAlchemy and `relaqs.dbapi`. The extra
`relaqs[sqlalchemy]` installs what it needs.
"""

from __future__ import annotations

from relaqs.sqlalchemy.dialect import RelaqsDialect

__all__ = ["RelaqsDialect"]
