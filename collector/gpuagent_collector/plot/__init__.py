"""Figures as files for print: the answers of the other commands, drawn by matplotlib, which nothing else imports."""
