"""Parts that all tools share: sender and pace of a load, watch of alerts, histograms, native threads."""
