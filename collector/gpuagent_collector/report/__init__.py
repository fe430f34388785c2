"""Reports: a comparison and its context as one HTML file that needs nothing else."""
