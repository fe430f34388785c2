"""Version 1 of the wire format; generated from the *.proto files beside it by `make proto`."""

# Sent in every hello. A collector refuses a version it does not speak.
PROTOCOL_VERSION = 1
