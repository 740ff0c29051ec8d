"""What ends with its time: deleted tags, images and repositories, idle uploads."""
