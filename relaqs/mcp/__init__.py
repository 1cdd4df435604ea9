"""The door for agents: tables and questions over the Model Context Protocol, by `relaqs mcp`.

It translates between that protocol and a session. Only this package imports `mcp`.
"""
