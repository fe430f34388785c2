"""Stores exchanged between sites: written as folders of Parquet files, merged without duplicates, pruned on request."""
