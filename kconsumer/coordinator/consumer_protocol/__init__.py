"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat."""
