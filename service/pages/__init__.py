"""The status page at `/`: its files, and the feed of alerts that it shows.

alert_feed  follows the newest alerts                            (Kafka)
alerts      an alert as the page shows it                        (pure)
routes      `/`, `/page/...`, `/v1/alerts`, `/v1/caller`
index.html, page.css, *.js   the page: no script or style from elsewhere, none inline
"""
