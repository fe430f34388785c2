"""Exchange of stores between sites: export to Parquet folders, merge without duplicates, delete on request."""
