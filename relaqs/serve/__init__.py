"""`relaqs serve`: one process that answers many users over the wire protocol of Postgres.

psql, Superset, Metabase, Grafana and the drivers of most languages speak this protocol. Here it is translated
to one `Session`, and its answers back. Nothing is estimated here.

    server.py       the process: its address, its connections, its end
    conversation.py one connection, message by message
    entry.py        how a connection begins: TLS, the user, the password
    statements.py   what a text asks for: a SELECT, a setting, a transaction
    cursors.py      DECLARE, FETCH, CLOSE: an answer in pages
    answering.py    a SELECT becomes an answer: exact, or the first that is good enough
    metadata.py     what tools ask of pg_catalog and information_schema
    column_types.py, values.py, parameters.py   DuckDB's types and values as those of Postgres, and back
    users.py, quotas.py   who may connect, and how much each may ask at once

What lives here may use public names of `relaqs` and `relaqs_engine` alone.
"""
