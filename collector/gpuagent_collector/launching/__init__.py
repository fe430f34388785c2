"""Has connected agents run things, from the operator's side: whom to choose, what becomes of it, what it prints."""
