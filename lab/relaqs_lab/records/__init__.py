"""What was measured, kept in files that only grow: one JSON object a line, its schema's version in each.

Knows what a run's record holds and how it is written and read again; measures nothing and draws nothing.
"""

from relaqs_lab.records.query_run import QueryRun
from relaqs_lab.records.schedule_run import ScheduleRun
from relaqs_lab.records.store import SCHEMA, Circumstances, RecordFile, circumstances

__all__ = ["SCHEMA", "Circumstances", "QueryRun", "RecordFile", "ScheduleRun", "circumstances"]
