"""Security of the sidecar's HTTP interface: authentication, roles, limits, safe headers and the audit log.

headers       security headers of every answer
gate          authentication: a bearer token (tokens), or a process of this machine
limits        request rate of a caller, size of a body
roles         role that a route needs: Viewer, Operator, Admin, Anyone
problems      errors as problem details (RFC 9457)
card_ids      card ids masked for viewers
listening     addresses on which the sidecar may listen
audit         records of changes and their hash chain      (audit_log, audit_api, audit_commands)
installation  adds all of them to an application
"""
