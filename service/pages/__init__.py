"""The status page at `/`: its files, and the alerts that it shows.

alerts      view of an alert                                     (pure)
routes      `/`, `/page/...`, `/v1/alerts`, `/v1/caller`
index.html, page.css, *.js   the page: no scripts or styles from other hosts, none inline
"""
