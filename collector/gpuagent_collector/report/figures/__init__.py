"""Charts as plotly draws them: plain data, so that writing them needs nothing of plotly but its script."""
