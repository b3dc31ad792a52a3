"""What a user types: each command is a thin function, and a file holds those of one kind."""
