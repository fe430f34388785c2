"""Who may enter a collector and do what: certificates, tokens with scopes, and a record of what was asked."""
