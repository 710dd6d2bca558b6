"""Public helpers for tests of code that uses kconsumer, and of assignor plugins."""
