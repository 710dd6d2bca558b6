"""Compiled code: encodes and decodes messages, reads record batches, builds Arrow columns and receives large frames."""
