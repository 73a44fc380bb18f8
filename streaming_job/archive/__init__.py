"""The archiver: writes topics to an archive (`feature_store.archive`), proves it, and deletes old files."""
