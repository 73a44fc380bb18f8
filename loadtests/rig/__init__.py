"""Parts that all measuring tools share: the watch of alerts, histograms of latency, native threads."""
