"""The status page at `/`: its files, and the alerts that it shows.

alerts      an alert as the page shows it                        (pure)
routes      `/`, `/page/...`, `/v1/alerts`, `/v1/caller`
index.html, page.css, *.js   the page: no script or style from elsewhere, none inline
"""
