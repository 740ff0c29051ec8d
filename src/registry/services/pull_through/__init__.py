"""The pull-through cache: repositories that are filled from an upstream when they are pulled."""
