"""Decodes columns of values: JSON, Avro and Protocol Buffers to Arrow columns.

The Spark source and `kconsumer.registry` use these decoders. They need pyarrow and the library of the format, and
import them when a decoder is created. None of them needs pyspark.
"""
