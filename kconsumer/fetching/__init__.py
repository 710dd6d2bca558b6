"""Fetches records: sends Fetch requests, buffers the responses, and collects the records that a poll returns."""
