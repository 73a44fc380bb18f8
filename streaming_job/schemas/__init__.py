"""The schemas of framed transactions: the topic in which the job finds them, and the tool that fills it."""
