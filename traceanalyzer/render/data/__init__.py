"""JSON and Parquet for programs."""
