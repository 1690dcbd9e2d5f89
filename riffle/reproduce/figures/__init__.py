"""The figures of the paper, several related ones in a file; :data:`riffle.reproduce.FIGURES` lists them."""
