"""Labels over HTTP: analysts report the outcomes of transactions."""
