"""Share groups (KIP-932): `ShareConsumer`, its managers and its engine. Users import `kconsumer.ShareConsumer`."""
