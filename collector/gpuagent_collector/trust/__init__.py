"""Access to a collector: certificates, tokens with scopes, and the audit record."""
