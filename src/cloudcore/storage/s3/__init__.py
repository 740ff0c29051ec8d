"""The S3-compatible endpoint of the storage family."""
