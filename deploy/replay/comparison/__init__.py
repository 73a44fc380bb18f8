"""The comparison of a replay's output with the live one's, in columns.

`reading` fetches the records, `columns` parses them, `differences` joins the two sides, `causes` names the
first cause of each difference, `labelled` weighs both sides by labels, `report` and `page` show the result.
"""
