"""What several environments share."""
