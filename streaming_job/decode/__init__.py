"""From the bytes of a topic to the records that the kernels take, or to a named reason why not."""
