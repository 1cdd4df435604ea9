"""The backend `ibis.relaqs`: ibis expressions over a warehouse, exact or online.

    con = ibis.relaqs.connect("warehouse")
    con.online(con.table("flights").dep_delay.mean(), target="5%")

ibis finds it by an entry point, and compiles with its own compiler of DuckDB's SQL. The extra `relaqs[ibis]`
installs what it needs.
"""

from __future__ import annotations

from relaqs.ibis.backend import Backend

__all__ = ["Backend"]
