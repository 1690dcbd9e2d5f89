"""Making LAMBADA's corpus: novels to passages that are drawn as LAMBADA's are."""
