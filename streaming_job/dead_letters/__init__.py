"""Dead letters: their records, and the tool that lists and replays them (`fraud dead-letters`)."""
