"""Labels: analysts report them over HTTP (`routes`); decoded with the alerts that they judge (`records`)."""
