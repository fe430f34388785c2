"""Report: a comparison and everything around it as one HTML file that needs nothing else."""
