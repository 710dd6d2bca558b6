"""Client telemetry (KIP-714): metrics that brokers request are pushed to them."""
