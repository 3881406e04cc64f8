"""Write a file that shows a difference between two sides without tfbench, and the text of a bug report."""
