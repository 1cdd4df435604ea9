"""`relaqs serve`: a server that answers many users over the wire protocol of Postgres.

psql, Superset, Metabase, Grafana and the drivers of most languages speak this protocol. Here it is translated
to one `Session`, and its answers back. Nothing is estimated here.

    server.py       a process: its address, its connections, its end
    entry.py        how a connection begins: TLS, the user, the password, and who may try how often
    conversation.py one connection, message by message
    stream.py       bytes become messages, and messages bytes
    statements.py   what a text asks for: a SELECT, a setting, a transaction
    named.py        what a connection keeps by names: prepared statements, cursors, savepoints
    answering.py    a SELECT becomes an answer: exact, or the first that is good enough
    encoded_rows.py, copy_out.py   its rows as messages, and as one stream of COPY
    column_types.py, values.py   DuckDB's types and values as those of Postgres, and back
    users.py, quotas.py   who may connect, how much each may ask at once
    processes.py    several processes that answer, each user in one of them

What lives here may use public names of `relaqs` and `relaqs_engine` alone.
"""
