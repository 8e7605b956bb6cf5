"""`rowsweep sweeps`: what is declared here and what became of it, launched and steered."""
