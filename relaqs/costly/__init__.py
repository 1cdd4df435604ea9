"""Aggregates over costly functions: questions to a model, an API or a person, asked of a sample of rows."""
