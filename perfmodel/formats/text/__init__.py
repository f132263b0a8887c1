"""Tables in text: how they are found in a stream, how numbers are written, and which rows count time twice."""
