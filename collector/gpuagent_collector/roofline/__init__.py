"""Roofline: what runs reach of what their device can do, by how much they compute for each byte they move."""
