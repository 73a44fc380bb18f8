"""Labels by HTTP: analysts say what became of transactions."""
