"""Wire facts as tables; imports nothing of ours."""
