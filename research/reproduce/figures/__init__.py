"""The figures of the paper, several related ones in a file; :data:`research.reproduce.FIGURES` lists them."""
