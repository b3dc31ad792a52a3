"""The transformer and its recurrence."""
