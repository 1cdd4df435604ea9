"""Object stores: addresses such as s3://bucket/trips, and the one place that reads and writes there.

No SQL, credential or endpoint passes through here: the library finds those in the environment itself.
"""
