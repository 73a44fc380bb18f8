"""Simulator: world -> scenarios -> transactions -> disturbances -> encode -> kafka_feed or parquet."""
