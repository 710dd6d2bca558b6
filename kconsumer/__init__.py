"""The Kafka consumer for Python."""
