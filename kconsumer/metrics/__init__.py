"""Metrics of a consumer: the registry, and the metrics reporters of the application."""
