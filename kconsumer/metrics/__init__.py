"""Metrics of a consumer: the registry, and the reporters that users give."""
