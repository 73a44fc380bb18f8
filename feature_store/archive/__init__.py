"""The archive of topics: Parquet files that keep Kafka's order and offsets, their manifests, their reader."""
