"""Simulator: world -> scenarios -> transactions -> disturbances -> encode -> rig.send or parquet."""
